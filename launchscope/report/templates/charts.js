// The figures beside the timeline, as SVG in the width that there is.

function chart(host, height) {
  const width = Math.max(200, Math.floor(host.clientWidth))
  const box = {width, height, viewBox: `0 0 ${width} ${height}`, class: "chart"}
  return [width, node("svg:svg", box)]
}

const text = (x, y, content, attributes = {}) => node("svg:text", {x, y, ...attributes}, content)
const line = (x1, y1, x2, y2, name) => node("svg:line", {x1, y1, x2, y2, class: name})
const rect = (x, y, width, height, name, attributes = {}) =>
  node("svg:rect", {x, y, width: Math.max(width, 0), height, class: name, ...attributes})
const END = {"text-anchor": "end"},
  MIDDLE = {"text-anchor": "middle"}

/** Round values that divide a span into about so many parts. */
function ticksOf(low, high, wanted) {
  const raw = (high - low) / wanted || 1,
    power = 10 ** Math.floor(Math.log10(raw))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw)
  const first = Math.ceil(low / step),
    length = Math.floor(high / step + 1e-9) - first + 1
  return Array.from({length}, (_, at) => +((first + at) * step).toPrecision(12))
}

const number = (value) =>
  Math.abs(value) >= 1000
    ? value.toLocaleString("en-US", {maximumFractionDigits: 0})
    : `${+value.toPrecision(4)}`
const widest = (names, font) => Math.max(...names.map((name) => textWidth(name, font)))

/** A grid line with its value for each tick of the y axis. */
function yAxis(svg, ticks, y, margin, width) {
  for (const tick of ticks)
    svg.append(
      line(margin, y(tick), width, y(tick), "grid"),
      text(margin - 7, y(tick) + 4, number(tick), END),
    )
}

/** Labels below the x axis, without those that would touch the one before. */
function xLabels(svg, values, x, y, width) {
  let free = -Infinity
  for (const value of values) {
    const half = textWidth(number(value)) / 2,
      at = Math.min(Math.max(x(value), half), width - half)
    if (at - half < free) continue
    svg.append(text(at, y, number(value), MIDDLE))
    free = at + half + 8
  }
}

drawers.stack = (host, {rows}) => {
  const tall = 30,
    gap = 14,
    names = Math.min(110, widest(rows.map((row) => row.name)) + 12),
    totals = widest(rows.map((row) => row.total), "600 12px system-ui") + 10
  const [width, svg] = chart(host, rows.length * (tall + gap))
  const sum = (row) => row.parts.reduce((total, part) => total + part.value, 0)
  const scale = (width - names - totals) / Math.max(...rows.map(sum))
  rows.forEach((row, at) => {
    const y = at * (tall + gap) + gap / 2
    let x = names
    const shown = cut(row.name, names - 10),
      name = text(names - 10, y + tall / 2 + 4, shown, {...END, class: "name-of-row"})
    svg.append(shown === row.name ? name : explain(name, [row.name]))
    for (const part of row.parts) {
      const wide = part.value * scale,
        share = `${((100 * part.value) / sum(row)).toFixed(1)} % of ${row.total}`,
        bar = rect(x, y, Math.max(wide - 1, 0.5), tall, "", {rx: 2, fill: fill(part.tone)})
      svg.append(explain(bar, [part.label, `${part.text} (${share})`]))
      const label = wide > 60 && cut(part.label, wide - 24)
      if (label) {
        const isPattern = part.tone in PATTERNS
        if (isPattern)
          svg.append(rect(x + 8, y + 6, textWidth(label) + 12, tall - 12, "paper", {rx: 3}))
        const ink = isPattern ? "on-paper" : `on-${part.tone}`
        svg.append(text(x + 14, y + tall / 2 + 4, label, {class: ink}))
      }
      x += wide
    }
    svg.append(text(x + 8, y + tall / 2 + 4, row.total, {class: "strong"}))
  })
  const seen = new Map()
  for (const part of rows.flatMap((row) => row.parts))
    if (!seen.has(part.label))
      seen.set(part.label, [part.tone, part.label, rows.length < 3 ? part.text : ""])
  host.replaceChildren(svg, legend([...seen.values()]))
}

const MARKS = [
  // so that a curve is known by its shape
  (x, y) => node("svg:circle", {cx: x, cy: y, r: 4.5}),
  (x, y) => rect(x - 4.5, y - 4.5, 9, 9, ""),
]

drawers.lines = (host, {series, mark, x: across, y: up}) => {
  const [width, svg] = chart(host, 330),
    top = 30,
    bottom = 280
  const points = series.flatMap((one) => one.points),
    xs = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b),
    ys = points.map(([, y]) => y)
  const steps = Array.from({length: 39}, (_, at) => [1, 2, 5][at % 3] * 10 ** (Math.floor(at / 3) - 6)),
    first = steps.findLastIndex((step) => step <= Math.min(...ys) * 1.001),
    last = steps.findIndex((step) => step >= Math.max(...ys) * 0.999),
    ticks = steps.slice(first, last + 1),
    margin = widest(ticks.map(number)) + 14
  const log = (value, low, high, from, to) =>
    from + (Math.log(value / low) / (Math.log(high / low) || 1)) * (to - from)
  const x = (value) => log(value, xs[0], xs.at(-1), margin + 16, width - 24)
  const y = (value) => log(value, ticks[0], ticks.at(-1), bottom, top)
  const italic = {class: "axis-name"}
  svg.append(text(0, 14, up, italic), text(width, 326, across, {...italic, ...END}))
  yAxis(svg, ticks, y, margin, width)
  svg.append(line(margin, bottom, width, bottom, "axis"))
  for (const value of xs) svg.append(line(x(value), bottom, x(value), bottom + 5, "axis"))
  xLabels(svg, xs, x, bottom + 20, width)
  if (mark) {
    const at = x(mark[0]),
      isLeft = at > width / 2
    svg.append(line(at, top, at, bottom, "mark"))
    svg.append(text(at + (isLeft ? -8 : 8), top + 4, mark[1], isLeft ? END : {}))
  }
  series.forEach((one, at) => {
    const group = node("svg:g", {class: `series series-${at}`}),
      route = one.points.map(([px, py]) => `${x(px)},${y(py)}`).join(" ")
    group.append(node("svg:polyline", {points: route}))
    one.points.forEach(([px, py], index) => {
      const lines = [`${one.name}: ${one.texts[index]}`, `${across} ${number(px)}`]
      group.append(explain(MARKS[at](x(px), y(py)), lines))
    })
    svg.append(group)
  })
  const names = series.map((one, at) => {
    const sign = {class: `swatch series series-${at}`, width: 26, height: 14, "aria-hidden": "true"}
    const stroke = node("svg:polyline", {points: "0,7 26,7"})
    return node("li", {}, node("svg:svg", sign, stroke, MARKS[at](13, 7)), one.name)
  })
  host.replaceChildren(svg, node("ul", {class: "legend"}, ...names))
}
