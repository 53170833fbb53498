// The timeline: eager above replayed, at one scale, on a canvas. Wheel with Ctrl (or after a click),
// drag, buttons and keys move it; the pointer explains the interval below it.

const LANE = {range: 16, operator: 16, launch: 16, sync: 16, gpu: 16, idle: 28}
const TONE = {
  kernel: "busy",
  memcpy: "copy",
  memset: "copy",
  graph: "launch",
  launch: "launch",
  sync: "sync",
}
const views = new WeakMap() // by host: the part of the time that is shown, kept through redrawing

drawers.timeline = (host, data) => {
  const whole = Math.max(...data.steps.map((step) => step.duration)) * 1.01
  const view = views.get(host) ?? {from: 0, to: whole}
  views.set(host, view)
  const width = Math.floor(host.clientWidth),
    isNarrow = width < 640,
    gutter = isNarrow ? 0 : 150
  const font = "12px system-ui, sans-serif",
    small = "11px system-ui, sans-serif"
  const palette = new Proxy({}, {get: (known, name) => (known[name] ??= color(name))})
  const ratio = devicePixelRatio || 1

  const {rows, titles, height} = laidOut(data.steps, isNarrow)
  const canvas = node("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Timeline. Left and right arrows move, plus and minus zoom, 0 shows everything.",
  })
  canvas.width = width * ratio
  canvas.height = height * ratio
  canvas.style.height = `${height}px`
  const to2d = canvas.getContext("2d")
  const x = (ns) => gutter + ((ns - view.from) / (view.to - view.from)) * (width - gutter)
  const ns = (at) => view.from + ((at - gutter) / (width - gutter)) * (view.to - view.from)

  const patterns = {}
  function paint(tone) {
    if (!(tone in PATTERNS)) return palette[tone]
    return (patterns[tone] ??= patternOf(tone))
  }
  function patternOf(tone) {
    const tile = document.createElement("canvas")
    tile.width = tile.height = 8 * ratio
    const brush = tile.getContext("2d")
    brush.scale(ratio, ratio)
    brush.fillStyle = palette[tone]
    brush.fillRect(0, 0, 8, 8)
    brush.strokeStyle = palette.motif
    brush.stroke(new Path2D(PATTERNS[tone]))
    const made = to2d.createPattern(tile, "repeat")
    made.setTransform(new DOMMatrix().scale(1 / ratio))
    return made
  }

  const toneOf = (lane, at) => {
    const kind = data.labels[lane.label[at]][1]
    return ["idle", "other"].includes(lane.kind) ? kind : (TONE[kind] ?? lane.kind)
  }
  const spansOf = (lane) =>
    lane.start.map((start, at) => [toneOf(lane, at), start, start + lane.duration[at]])

  /** Fills each pixel column by the share of its time that each tone takes, from the bottom up: the
   * area of a tone is its share of the time, however short its spans are. */
  function fillShares(spans, y, tall, least = 0) {
    const columns = Math.ceil((width - gutter) * ratio),
      filled = new Float64Array(columns),
      made = sharesOf(spans, (at) => (x(at) - gutter) * ratio, columns)
    for (const [tone, shares] of Object.entries(made)) {
      to2d.fillStyle = paint(tone)
      const high = (at) => shares[at] && Math.min(Math.max(shares[at], least / tall), 1 - filled[at])
      for (let at = 0, next; at < columns; at = next) {
        const share = high(at),
          top = y + tall * (1 - filled[at] - share)
        for (next = at + 1; high(next) === share && filled[next] === filled[at]; next++);
        if (share) to2d.fillRect(gutter + at / ratio, top, (next - at) / ratio, tall * share)
        filled.fill(filled[at] + share, at, next)
      }
    }
  }

  function inside(label, start, duration, y, tall, ink, paper) {
    const left = Math.max(x(start), gutter),
      wide = Math.min(x(start + duration), width) - left
    if (wide < 34) return
    to2d.font = small
    const shown = cut(label, wide - 12)
    if (!shown) return
    if (paper) {
      to2d.fillStyle = paper
      to2d.fillRect(left + 4, y + tall / 2 - 8, textWidth(shown, small) + 6, 16)
    }
    to2d.fillStyle = ink
    to2d.fillText(shown, left + 7, y + tall / 2 + 4)
  }

  function draw() {
    to2d.setTransform(ratio, 0, 0, ratio, 0, 0)
    to2d.clearRect(0, 0, width, height)
    to2d.font = font
    // The scale.
    const ticks = ticksOf(view.from, view.to, Math.max(2, (width - gutter) / 110))
    to2d.textAlign = "center"
    for (const tick of ticks) {
      to2d.fillStyle = palette.line
      to2d.fillRect(x(tick), 22, 1, height - 22)
      to2d.fillStyle = palette.dim
      const label = tick === 0 ? "0" : time(tick),
        half = textWidth(label) / 2
      to2d.fillText(label, Math.min(Math.max(x(tick), gutter + half), width - half - 2), 14)
    }
    to2d.textAlign = "left"
    for (const {y, step} of titles) {
      to2d.fillStyle = palette.card
      to2d.fillRect(0, y - 15, width, isNarrow ? 38 : 22)
      to2d.font = "600 13px system-ui, sans-serif"
      to2d.fillStyle = palette.ink
      to2d.fillText(step.title, 0, y)
      const after = isNarrow ? 0 : to2d.measureText(step.title).width + 12
      to2d.font = font
      to2d.fillStyle = palette.dim
      to2d.fillText(cut(`${step.length}`, width - after), after, y + (isNarrow ? 17 : 0))
    }
    for (const row of rows) {
      const {lane, y, height: tall} = row
      to2d.font = small
      to2d.fillStyle = palette.dim
      if (isNarrow) to2d.fillText(row.name, 0, y - 4)
      else to2d.fillText(cut(row.name, gutter - 14), 0, y + tall / 2 + 4)
      to2d.fillStyle = palette.track
      to2d.fillRect(gutter, y, width - gutter, tall)
      const spans = [lane, row.others].flatMap((one) => (one ? spansOf(one) : []))
      if (row.busy) spans.unshift(...row.busy.map(([start, end]) => ["busy", start, end]))
      fillShares(spans, y, tall, ["gpu", "idle"].includes(lane.kind) ? 0 : 1)
      lane.start.forEach((start, at) => {
        const tone = toneOf(lane, at),
          isIdle = lane.kind === "idle",
          [name, kind, short] = data.labels[lane.label[at]],
          shown = isIdle ? data.causes[kind] : short || name,
          ink = isIdle ? palette.ink : palette[`on-${tone}`]
        const paper = isIdle || tone === "sync" ? palette.card : null
        inside(shown, start, lane.duration[at], y, tall, ink, paper)
      })
    }
    canvas.dataset.from = view.from
    canvas.dataset.to = view.to
  }

  let frame = 0
  function redraw() {
    frame ||= requestAnimationFrame(() => {
      frame = 0
      draw()
    })
  }

  function show(from, to) {
    const span = Math.min(Math.max(to - from, 500), whole)
    view.from = Math.min(Math.max(from + (to - from - span) / 2, 0), whole - span)
    view.to = view.from + span
    hideTip()
    redraw()
  }
  const zoom = (factor, around = (view.from + view.to) / 2) =>
    show(around - (around - view.from) * factor, around + (view.to - around) * factor)
  const move = (share) =>
    show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from))
  const all = () => show(0, whole)

  function found(px, py) {
    const row = rows.find((one) => py >= one.y - 2 && py < one.y + one.height + 2)
    if (!row || px < gutter) return null
    const at = ns(px),
      near = (3 * (view.to - view.from)) / (width - gutter)
    const nearest = (lane) => {
      let best = -1,
        least = near
      lane.start.forEach((start, index) => {
        const away = Math.max(start - at, at - start - lane.duration[index], 0)
        const isShorter = lane.duration[index] < lane.duration[best]
        if (away < least || (!away && !least && isShorter)) [best, least] = [index, away]
      })
      return [best, least]
    }
    const [best, away] = nearest(row.lane)
    if (row.busy) {
      const busy = row.busy.find(([start, end]) => at >= start && at < end)
      if (busy) return [`GPU busy: ${time(busy[1] - busy[0])}`, `from ${time(busy[0])}`]
      if (row.others && (best < 0 || away > 0)) {
        const [other, off] = nearest(row.others)
        if (other >= 0 && off === 0)
          return ["GPU works for other iterations", time(row.others.duration[other])]
      }
    }
    if (best < 0) return null
    const {lane} = row,
      [name, kind] = data.labels[lane.label[best]],
      count = lane.count[best] ?? 1
    const isIdle = lane.kind === "idle",
      title = isIdle ? `GPU idle: ${data.causes[kind]}` : name
    return [
      title,
      `${time(lane.duration[best])} from ${time(lane.start[best])}`,
      count > 1 ? `${count} drawn as one; the longest is named` : "",
      isIdle ? "" : row.name,
    ]
  }

  // A mouse or a finger moves the time below it; two fingers also stretch the time between them.
  const down = new Map() // where each pointer is
  let grip = null // what was shown when the last of them came or went, and where they were
  function hold() {
    grip = {from: view.from, to: view.to, center: center(), spread: spread()}
  }
  const center = () => [...down.values()].reduce((sum, [x]) => sum + x, 0) / down.size
  const spread = () => {
    const [one, two] = down.values()
    return two ? Math.max(Math.hypot(one[0] - two[0], one[1] - two[1]), 16) : 1
  }
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, [event.clientX, event.clientY])
    canvas.setPointerCapture(event.pointerId)
    hold()
  })
  canvas.addEventListener("pointermove", (event) => {
    if (down.has(event.pointerId)) {
      down.set(event.pointerId, [event.clientX, event.clientY])
      const left = canvas.getBoundingClientRect().left + gutter,
        wide = width - gutter,
        span = grip.to - grip.from
      const held = grip.from + ((grip.center - left) / wide) * span,
        stretched = Math.min((span * grip.spread) / spread(), whole)
      const from = held - ((center() - left) / wide) * stretched
      show(from, from + stretched)
      return
    }
    const box = canvas.getBoundingClientRect()
    const lines = found(event.clientX - box.left, event.clientY - box.top)
    if (lines) showTip(event.clientX, event.clientY, lines)
    else hideTip()
  })
  for (const name of ["pointerup", "pointercancel"])
    canvas.addEventListener(name, (event) => {
      down.delete(event.pointerId)
      hold()
    })
  canvas.addEventListener("pointerleave", hideTip)
  function turn(event) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY)
    if (!event.ctrlKey && !event.metaKey && !isSideways && document.activeElement !== canvas) return
    event.preventDefault()
    if (isSideways) move(event.deltaX / (width - gutter))
    else zoom(1.0015 ** event.deltaY, ns(event.clientX - canvas.getBoundingClientRect().left))
  }
  canvas.addEventListener("wheel", turn, {passive: false})
  const keys = {
    ArrowLeft: () => move(-0.15),
    ArrowRight: () => move(0.15),
    "+": () => zoom(1 / 1.5),
    "=": () => zoom(1 / 1.5),
    "-": () => zoom(1.5),
    0: all,
  }
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    keys[event.key]()
  })

  const button = (label, name, action) => {
    const made = node("button", {type: "button", "aria-label": name, title: name}, label)
    made.addEventListener("click", action)
    return made
  }
  const help = "Ctrl and wheel to zoom, drag to move, or click and use \u2190 \u2192 + \u2212 0"
  const tools = node(
    "div",
    {class: "tools"},
    button("\u2212", "Zoom out", () => zoom(1.5)),
    button("+", "Zoom in", () => zoom(1 / 1.5)),
    button("Reset", "Show everything", all),
    node("span", {class: "dim"}, help),
  )

  const lanes = data.steps.flatMap((step) => step.lanes),
    present = new Set(lanes.flatMap((lane) => lane.start.map((_, at) => toneOf(lane, at))))
  const names = {
    range: "ranges",
    operator: "operators",
    launch: "launch calls",
    busy: "kernels",
    copy: "copies and sets",
    ...data.causes,
    other: "work of other iterations",
    sync: "synchronization",
  }
  const tones = Object.entries(names).filter(([tone]) => present.has(tone))
  host.replaceChildren(tools, canvas, legend(tones))
  draw()
}

/** When any of the lanes is active: [start, end] by start. */
function unionOf(lanes) {
  const spans = lanes
    .flatMap((lane) => lane.start.map((start, at) => [start, start + lane.duration[at]]))
    .sort((a, b) => a[0] - b[0])
  const made = []
  for (const [start, end] of spans) {
    if (made.length && start <= made.at(-1)[1]) made.at(-1)[1] = Math.max(made.at(-1)[1], end)
    else made.push([start, end])
  }
  return made
}

/** The lanes of all steps and their titles, from the top to the bottom. */
function laidOut(steps, isNarrow) {
  const rows = [],
    titles = []
  let height = 30
  for (const step of steps) {
    titles.push({y: height + 16, step})
    height += isNarrow ? 46 : 28
    const idle = step.lanes.find((lane) => lane.kind === "idle")
    const others = step.lanes.find((lane) => lane.kind === "other")
    const gpu = step.lanes.filter((lane) => lane.kind === "gpu")
    const onHost = step.lanes.filter((lane) => !["gpu", "idle", "other"].includes(lane.kind))
    for (const lane of [...onHost, idle, ...gpu]) {
      if (!lane) continue
      if (isNarrow) height += 15
      const isIdle = lane === idle,
        ofLane = lane.kind === "gpu" ? lane.of : `, ${lane.of}`,
        name = isIdle ? "GPU, busy and idle" : lane.name + ofLane
      const row = {y: height, height: LANE[lane.kind], lane, name}
      rows.push(isIdle ? {...row, busy: unionOf(gpu), others} : row)
      height += LANE[lane.kind] + 4
    }
    height += 18
  }
  height -= 10
  return {rows, titles, height}
}

/** By tone, how much of each column its spans cover; `place` turns a time into columns. */
function sharesOf(spans, place, columns) {
  const made = {}
  for (const [tone, start, end] of spans) {
    const left = Math.max(place(start), 0),
      right = Math.min(place(end), columns)
    if (left < right) made[tone] ??= new Float64Array(columns)
    for (let at = Math.floor(left); at < right; at++)
      made[tone][at] += Math.min(right, at + 1) - Math.max(left, at)
  }
  return made
}
