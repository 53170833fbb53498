// The figures beside the timeline, as SVG in the width that there is.

function chart(host, height, ...children) {
  const width = Math.max(200, Math.floor(host.clientWidth))
  return [
    width,
    node(
      "svg:svg",
      {width, height, viewBox: `0 0 ${width} ${height}`, class: "chart"},
      ...children,
    ),
  ]
}

function text(x, y, content, attributes = {}) {
  return node("svg:text", {x, y, ...attributes}, content)
}

function line(x1, y1, x2, y2, name) {
  return node("svg:line", {x1, y1, x2, y2, class: name})
}

/** Round values that divide a span into about so many parts. */
function ticksOf(low, high, wanted) {
  const raw = (high - low) / wanted || 1,
    power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw)
  // Values so large that adding 1 changes nothing have no end.
  const first = Math.ceil(low / step),
    length = Math.min(Math.floor(high / step + 1e-9) - first + 1, 100)
  return Array.from({length}, (_, at) => +((first + at) * step).toPrecision(12))
}

const number = (value) =>
  Math.abs(value) >= 1000
    ? value.toLocaleString("en-US", {maximumFractionDigits: 0})
    : `${+value.toPrecision(4)}`

drawers.stack = (host, {rows}) => {
  const bar = 30,
    gap = 14,
    names = Math.min(110, Math.max(...rows.map((row) => textWidth(row.name))) + 12)
  const totals = Math.max(...rows.map((row) => textWidth(row.total, "600 12px system-ui"))) + 10
  const [width, svg] = chart(host, rows.length * (bar + gap))
  const sum = (row) => row.parts.reduce((total, part) => total + part.value, 0)
  const scale = (width - names - totals) / Math.max(...rows.map(sum))
  rows.forEach((row, at) => {
    const y = at * (bar + gap) + gap / 2
    let x = names
    svg.append(text(names - 10, y + bar / 2 + 4, cut(row.name, names - 10), {"text-anchor": "end"}))
    for (const part of row.parts) {
      const wide = part.value * scale
      const share = `${((100 * part.value) / sum(row)).toFixed(1)} % of ${row.total}`
      svg.append(
        explain(
          node("svg:rect", {
            x,
            y,
            width: Math.max(wide - 1, 0.5),
            height: bar,
            rx: 2,
            fill: fill(part.tone),
          }),
          [part.label, `${part.text} (${share})`],
        ),
      )
      const label = cut(part.label, wide - 24),
        isPattern = part.tone in PATTERNS
      if (wide > 60 && label) {
        if (isPattern)
          svg.append(
            node("svg:rect", {
              x: x + 8,
              y: y + 6,
              width: textWidth(label) + 12,
              height: bar - 12,
              rx: 3,
              class: "paper",
            }),
          )
        svg.append(
          text(x + 14, y + bar / 2 + 4, label, {class: isPattern ? "on-paper" : `on-${part.tone}`}),
        )
      }
      x += wide
    }
    svg.append(text(x + 8, y + bar / 2 + 4, row.total, {class: "strong"}))
  })
  const seen = new Map()
  for (const part of rows.flatMap((row) => row.parts)) {
    if (!seen.has(part.label))
      seen.set(part.label, [part.tone, part.label, rows.length < 3 ? part.text : ""])
  }
  host.replaceChildren(svg, legend([...seen.values()]))
}

drawers.runs = (host, {rows}) => {
  const runs = rows.map(() => node("div", {class: "run"}))
  host.replaceChildren(...runs)
  rows.forEach((row, which) => {
    const height = 96,
      side = 48,
      [width, svg] = chart(runs[which], height)
    const low = Math.min(...row.samples, row.low),
      high = Math.max(...row.samples, row.high)
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.01 || 1
    const ticks = ticksOf(low, high, 3),
      margin = Math.max(...ticks.map((tick) => textWidth(number(tick)))) + 10
    const y = (value) => height - 8 - ((value - low + pad) / (high - low + 2 * pad)) * (height - 16)
    const x = (at) =>
      margin + 8 + (at * (width - side - margin - 24)) / Math.max(row.samples.length - 1, 1)
    for (const tick of ticks) {
      svg.append(
        line(margin, y(tick), width, y(tick), "grid"),
        text(margin - 6, y(tick) + 4, number(tick), {"text-anchor": "end"}),
      )
    }
    svg.append(
      node("svg:rect", {
        x: margin,
        y: y(row.high),
        width: width - margin,
        height: Math.max(y(row.low) - y(row.high), 1),
        class: "band",
      }),
      line(margin, y(row.median), width, y(row.median), "median"),
    )
    const bins = new Array(12).fill(0)
    row.samples.forEach((sample, at) => {
      bins[Math.min(11, Math.floor((12 * (sample - low)) / (high - low || 1)))]++
      svg.append(
        explain(
          node("svg:circle", {cx: x(at), cy: y(sample), r: 3.5, class: "dot"}),
          [`${number(sample)} ms`, `${row.name}, sample ${at + 1} of ${row.samples.length}`],
          false,
        ),
      )
    })
    const most = Math.max(...bins)
    bins.forEach((count, at) => {
      if (!count) return
      const top = y(low + ((at + 1) * (high - low)) / 12),
        bottom = y(low + (at * (high - low)) / 12)
      svg.append(
        explain(
          node("svg:rect", {
            x: width - side,
            y: top,
            width: (count / most) * side,
            height: Math.max(bottom - top - 1, 2),
            class: "bin",
          }),
          [
            `${count} of ${row.samples.length} samples`,
            `${number(low + (at * (high - low)) / 12)} to ${number(low + ((at + 1) * (high - low)) / 12)} ms`,
          ],
          false,
        ),
      )
    })
    svg.setAttribute("role", "img")
    svg.setAttribute("aria-label", `${row.name}: ${row.text}`)
    runs[which].append(node("h3", {}, row.name, node("b", {}, row.text)), svg)
  })
}

const MARKS = [
  // so that a curve is known by its shape
  (x, y) => node("svg:circle", {cx: x, cy: y, r: 4.5}),
  (x, y) => node("svg:rect", {x: x - 4.5, y: y - 4.5, width: 9, height: 9}),
  (x, y) => node("svg:path", {d: `M${x} ${y - 6}L${x + 6} ${y + 5}H${x - 6}Z`}),
]

drawers.lines = (host, {series, mark, x: across, y: up}) => {
  const [width, svg] = chart(host, 330),
    top = 30,
    bottom = 280
  const xs = [...new Set(series.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b)
  const ys = series
    .flatMap((one) => [...one.points.map(([, y]) => y), ...one.bounds.flat()])
    .filter((y) => y > 0)
  const steps = [-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6].flatMap((power) =>
    [1, 2, 5].map((factor) => factor * 10 ** power),
  )
  const first = steps.findLastIndex((step) => step <= Math.min(...ys) * 1.001)
  const last = steps.findIndex((step) => step >= Math.max(...ys) * 0.999)
  const ticks = steps.slice(first, last + 1)
  const margin = Math.max(...ticks.map((tick) => textWidth(number(tick)))) + 14
  const log = (value, low, high, from, to) =>
    from + (Math.log(value / low) / (Math.log(high / low) || 1)) * (to - from)
  const x = (value) => log(value, xs[0], xs.at(-1), margin + 16, width - 24)
  const y = (value) => log(value, ticks[0], ticks.at(-1), bottom, top)
  svg.append(
    text(0, 14, up, {class: "axis-name"}),
    text(width, 326, across, {class: "axis-name", "text-anchor": "end"}),
  )
  for (const tick of ticks)
    svg.append(
      line(margin, y(tick), width, y(tick), "grid"),
      text(margin - 8, y(tick) + 4, number(tick), {"text-anchor": "end"}),
    )
  svg.append(line(margin, bottom, width, bottom, "axis"))
  let free = 0
  for (const value of xs) {
    const half = textWidth(number(value)) / 2
    svg.append(line(x(value), bottom, x(value), bottom + 5, "axis"))
    if (x(value) - half < free) continue
    svg.append(text(x(value), bottom + 20, number(value), {"text-anchor": "middle"}))
    free = x(value) + half + 8
  }
  if (mark) {
    const at = x(mark[0]),
      left = at > width / 2
    svg.append(
      line(at, top, at, bottom, "mark"),
      text(at + (left ? -8 : 8), top + 4, mark[1], {"text-anchor": left ? "end" : "start"}),
    )
  }
  series.forEach((one, at) => {
    const group = node("svg:g", {class: `series series-${at}`})
    group.append(
      node("svg:polyline", {points: one.points.map(([px, py]) => `${x(px)},${y(py)}`).join(" ")}),
    )
    one.points.forEach(([px, py], index) => {
      const bounds = one.bounds[index]
      if (bounds && bounds[0] > 0)
        group.append(
          node("svg:path", {
            class: "whisker",
            d: `M${x(px)} ${y(bounds[0])}V${y(bounds[1])}M${x(px) - 4} ${y(bounds[0])}h8M${x(px) - 4} ${y(bounds[1])}h8`,
          }),
        )
      group.append(
        explain(MARKS[at % 3](x(px), y(py)), [
          `${one.name}: ${one.texts[index]}`,
          `${across} ${number(px)}`,
          bounds && bounds[1] > bounds[0] ? `${number(bounds[0])} to ${number(bounds[1])} ms` : "",
        ]),
      )
    })
    svg.append(group)
  })
  const names = node(
    "ul",
    {class: "legend"},
    ...series.map((one, at) => {
      const sign = node(
        "svg:svg",
        {class: `swatch series series-${at}`, width: 26, height: 14, "aria-hidden": "true"},
        node("svg:polyline", {points: "0,7 26,7"}),
        MARKS[at % 3](13, 7),
      )
      return node("li", {}, sign, one.name)
    }),
  )
  host.replaceChildren(svg, names)
}

drawers.bars = (host, {rows, unit}) => {
  const tall = 44,
    [width, svg] = chart(host, rows.length * tall + 4)
  const values = rows
    .flatMap((row) => [row.value, row.low, row.high, row.mark])
    .filter((value) => value != null)
  const low = Math.min(0, ...values),
    high = Math.max(0, ...values)
  const inset = 6,
    x = (value) => inset + ((value - low) / (high - low || 1)) * (width - 2 * inset)
  rows.forEach((row, at) => {
    const y = at * tall,
      figure = node("svg:tspan", {class: "figure"}, row.text)
    const room = width - textWidth(row.text) - 24
    const name = text(0, y + 14, cut(row.name, Math.max(room, 80)), {class: "name"})
    svg.append(name, node("svg:text", {x: width, y: y + 14, "text-anchor": "end"}, figure))
    svg.append(
      node("svg:rect", {
        x: inset,
        y: y + 20,
        width: width - 2 * inset,
        height: 14,
        class: "track",
        rx: 2,
      }),
    )
    if (low < 0) svg.append(line(x(0), y + 18, x(0), y + 36, "axis"))
    if (row.value == null) return
    const from = Math.min(x(0), x(row.value)),
      wide = Math.max(Math.abs(x(row.value) - x(0)), 1.5)
    svg.append(
      node("svg:rect", {
        x: from,
        y: y + 20,
        width: wide,
        height: 14,
        rx: 2,
        class: `bar ${row.tone}`,
      }),
    )
    if (row.low != null && row.high > row.low)
      svg.append(
        node("svg:path", {
          class: "whisker",
          d: `M${x(row.low)} ${y + 27}H${x(row.high)}M${x(row.low)} ${y + 23}v8M${x(row.high)} ${y + 23}v8`,
        }),
      )
    if (row.mark != null)
      svg.append(node("svg:path", {class: "limit", d: `M${x(row.mark)} ${y + 17}v20`}))
    svg.append(
      explain(node("svg:rect", {x: 0, y, width, height: tall - 6, class: "target"}), [
        row.full ?? row.name,
        row.text,
        row.low != null && row.high > row.low
          ? `${number(row.low)} to ${number(row.high)} ${unit}`
          : "",
        row.mark != null ? `limit ${number(row.mark)} ${unit}` : "",
      ]),
    )
  })
  host.replaceChildren(svg)
}

drawers.heat = (host, {rows, names}) => {
  const high = 26,
    left = Math.max(...rows.map((row) => textWidth(row.name))) + 12
  const right = Math.max(...rows.map((row) => textWidth(`${row.low} to ${row.high}`))) + 12
  const [width, svg] = chart(host, rows.length * (high + 6) + 22)
  const wide = (width - left - right) / names.length
  rows.forEach((row, at) => {
    const y = at * (high + 6)
    svg.append(
      text(left - 10, y + high / 2 + 4, row.name, {"text-anchor": "end"}),
      text(width - right + 10, y + high / 2 + 4, `${row.low} to ${row.high}`),
    )
    row.cells.forEach((cell, column) => {
      if (!cell) return
      const [share, value] = cell
      const shape = node("svg:rect", {
        x: left + column * wide,
        y,
        width: Math.max(wide - (wide > 4 ? 1 : 0), 1),
        height: high,
        class: "heat",
        "fill-opacity": 0.08 + 0.92 * share,
      })
      svg.append(explain(shape, [names[column], `${row.name} ${value}`], names.length <= 64))
    })
  })
  const bottom = rows.length * (high + 6) + 10
  svg.append(
    text(left, bottom, names[0]),
    text(width - right, bottom, names.at(-1), {"text-anchor": "end"}),
  )
  host.replaceChildren(svg)
}

drawers.depth = (host, {depth, length, maximum}) => {
  const height = 120,
    [width, svg] = chart(host, height),
    bottom = 92,
    top = 8
  const most = Math.max(...depth, 1),
    margin = textWidth(number(most)) + 14
  const x = (at) => margin + (at / depth.length) * (width - margin)
  const y = (value) => bottom - (value / most) * (bottom - top)
  for (const tick of ticksOf(0, most, 3)) {
    svg.append(
      line(margin, y(tick), width, y(tick), "grid"),
      text(margin - 8, y(tick) + 4, number(tick), {"text-anchor": "end"}),
    )
  }
  const steps = depth.map((value, at) => `V${y(value)}H${x(at + 1)}`).join("")
  svg.append(
    node("svg:path", {d: `M${margin} ${bottom}${steps}V${bottom}Z`, class: "area"}),
    line(margin, bottom, width, bottom, "axis"),
  )
  for (const tick of ticksOf(0, length, Math.max(2, width / 120))) {
    const at = margin + (tick / length) * (width - margin),
      half = textWidth(time(tick)) / 2
    svg.append(text(Math.min(at, width - half), bottom + 18, time(tick), {"text-anchor": "middle"}))
  }
  const target = node("svg:rect", {
    x: margin,
    y: 0,
    width: width - margin,
    height: bottom,
    class: "target",
  })
  target.addEventListener("pointermove", (event) => {
    const share = (event.clientX - svg.getBoundingClientRect().left - margin) / (width - margin)
    const at = Math.min(depth.length - 1, Math.max(0, Math.floor(share * depth.length)))
    showTip(event.clientX, event.clientY, [
      `${number(depth[at])} in the queue`,
      `at ${time(share * length)}`,
      `at most ${maximum}`,
    ])
  })
  target.addEventListener("pointerleave", hideTip)
  svg.append(target)
  host.replaceChildren(svg)
}

drawers.histograms = (host, {rows}) => {
  const parts = rows.map(() => node("div", {class: "run"}))
  host.replaceChildren(...parts)
  rows.forEach((row, which) => {
    const [width, svg] = chart(parts[which], 120),
      bottom = 96,
      top = 8
    const most = Math.max(...row.counts),
      wide = width / row.counts.length
    const place = (value) => {
      // bins are drawn equally wide
      const at = Math.max(
        0,
        row.edges.findLastIndex((edge) => edge <= value),
      )
      const low = row.edges[at],
        high = row.edges[at + 1] ?? low
      return Math.min(width, (at + (high > low ? (value - low) / (high - low) : 0)) * wide)
    }
    row.counts.forEach((count, at) => {
      const y = bottom - (count / most) * (bottom - top),
        from = number(row.edges[at]),
        to = number(row.edges[at + 1])
      if (count)
        svg.append(
          node("svg:rect", {
            x: at * wide,
            y,
            width: Math.max(wide - 1, 1),
            height: bottom - y,
            class: "bin",
          }),
        )
      svg.append(
        explain(
          node("svg:rect", {
            x: at * wide,
            y: top,
            width: wide,
            height: bottom - top,
            class: "target",
          }),
          [count.toLocaleString("en-US"), `${at ? `${from} to` : "below"} ${to} us`],
          false,
        ),
      )
    })
    svg.append(line(0, bottom, width, bottom, "axis"))
    for (const [name, value] of [
      ["median", row.median],
      ["95th percentile", row.p95],
    ]) {
      svg.append(
        explain(
          line(place(value), top, place(value), bottom, name === "median" ? "mark" : "mark dotted"),
          [name, `${number(value)} us`],
          false,
        ),
      )
    }
    let free = 0
    row.edges.forEach((edge, at) => {
      const half = textWidth(number(edge)) / 2,
        x = Math.min(Math.max(at * wide, half), width - half)
      if (x - half < free) return
      svg.append(text(x, bottom + 17, number(edge), {"text-anchor": "middle"}))
      free = x + half + 14
    })
    svg.setAttribute("role", "img")
    svg.setAttribute("aria-label", `${row.name}, us: ${row.text}`)
    parts[which].append(node("h3", {}, `${row.name}, us`, node("b", {}, row.text)), svg)
  })
}

drawers.icicle = (host, {tree}) => {
  const tall = 26
  const depthOf = (item) => 1 + Math.max(0, ...item.children.map(depthOf))
  const [width, svg] = chart(host, depthOf(tree) * tall)
  const place = (item, x, wide, level, shade) => {
    const share = `${((100 * item.value) / tree.value).toFixed(1)} %`
    const box = node("svg:rect", {
      x,
      y: level * tall,
      width: Math.max(wide - 1, 0.5),
      height: tall - 2,
      rx: 3,
      class: `leaf shade-${level ? 1 + (shade % 3) : 0}`,
    })
    svg.append(
      explain(
        box,
        [
          item.name,
          `${number(item.value)} ms of GPU idle, ${share}`,
          `${number(item.launches)} launches per step`,
        ],
        wide > 6,
      ),
    )
    const label = wide > 40 ? cut(item.name, wide - 14) : ""
    if (label) svg.append(text(x + 7, level * tall + 16, label, {class: "on-leaf"}))
    let from = x
    const children = [...item.children].sort((a, b) => b.value - a.value)
    children.forEach((child, at) => {
      const part = item.value ? (child.value / item.value) * wide : 0
      if (part > 0.3) place(child, from, part, level + 1, shade + at + level)
      from += part
    })
  }
  place(tree, 0, width, 0, 0)
  host.replaceChildren(svg)
}
