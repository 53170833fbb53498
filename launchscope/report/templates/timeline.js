// The timeline: eager above replayed, at one scale, on a canvas. Wheel with Ctrl (or after a click),
// drag, buttons and keys move it; the pointer explains the interval below it, and a click picks it.

const LANE = {range: 16, operator: 16, launch: 16, sync: 16, gpu: 16, idle: 28}
const TONE = {
  kernel: "busy",
  memcpy: "copy",
  memset: "copy",
  graph: "launch",
  launch: "launch",
  sync: "sync",
}
// By host, kept through redrawing: the part of the time that is shown, what is picked, and what
// stands out: what was searched for, or what has this name. And what the page asks of each.
const views = new WeakMap()
const timelines = new Map()

drawers.timeline = (host, data) => {
  const whole = Math.max(...data.steps.map((step) => step.duration)) * 1.01
  const view = views.get(host) ?? {from: 0, to: whole, picked: null, found: null, named: null}
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
    "aria-label":
      "Timeline. Left and right arrows move, plus and minus zoom, 0 shows everything. " +
      "N and P pick the next and the previous kernel, Enter zooms to it, Escape closes it.",
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
    const standsOut = outstanding()
    const isMarked = (one) => isPicked(one) || (call?.lane === one.lane && call.at === one.at)
    const call = view.picked && launchOf(view.picked)
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
      const {step, lane, y, height: tall} = row
      to2d.font = small
      to2d.fillStyle = palette.dim
      if (isNarrow) to2d.fillText(row.name, 0, y - 4)
      else to2d.fillText(cut(row.name, gutter - 14), 0, y + tall / 2 + 4)
      to2d.fillStyle = palette.track
      to2d.fillRect(gutter, y, width - gutter, tall)
      const spans = [lane, row.others].flatMap((one) => (one ? spansOf(one) : []))
      if (row.busy) spans.unshift(...row.busy.map(([start, end]) => ["busy", start, end]))
      const isOut =
        standsOut && intervalsOf(step, [lane]).map((one) => standsOut(one) || isMarked(one))
      to2d.globalAlpha = isOut ? 0.25 : 1
      fillShares(spans, y, tall, ["gpu", "idle"].includes(lane.kind) ? 0 : 1)
      to2d.globalAlpha = 1
      const out = spansOf(lane).filter((_, at) => isOut?.[at])
      fillShares(out, y, tall, tall)
      lane.start.forEach((start, at) => {
        if (isOut && !isOut[at]) return
        const tone = toneOf(lane, at),
          isIdle = lane.kind === "idle",
          [name, kind, short] = data.labels[lane.label[at]],
          shown = isIdle ? data.causes[kind] : short || name,
          ink = isIdle ? palette.ink : palette[`on-${tone}`]
        const paper = isIdle || tone === "sync" ? palette.card : null
        inside(shown, start, lane.duration[at], y, tall, ink, paper)
      })
    }
    if (view.picked) mark(view.picked, call)
    canvas.dataset.from = view.from
    canvas.dataset.to = view.to
  }

  /** Frames the picked interval and the call that launched it, with an arrow between them. */
  function mark(picked, call) {
    const path = new Path2D(),
      shown = [picked, ...(call ? [call] : [])].map((one) => {
        const row = rows.find(({lane}) => lane === one.lane),
          left = x(startOf(one))
        return {...row, left, wide: x(startOf(one) + lengthOf(one)) - left}
      })
    for (const {left, wide, y, height: tall} of shown) path.rect(left - 1.5, y - 1.5, wide + 3, tall + 3)
    if (call) {
      const [{left: to, y: end}, {left: from, y, height: tall}] = shown,
        bend = (y + tall + end) / 2
      path.moveTo(from, y + tall + 2)
      path.bezierCurveTo(from, bend, to, bend, to, end - 3)
      path.moveTo(to - 4, end - 8)
      path.lineTo(to, end - 3)
      path.lineTo(to + 4, end - 8)
    }
    to2d.save()
    to2d.beginPath()
    to2d.rect(gutter - 3, 0, width, height)
    to2d.clip()
    for (const [tone, thick] of [["card", 4.5], ["ink", 1.8]]) {
      to2d.strokeStyle = palette[tone]
      to2d.lineWidth = thick
      to2d.stroke(path)
    }
    to2d.restore()
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

  /** The interval of a lane that is not more than three pixels away from a time. */
  function nearest(lane, at) {
    let best = -1,
      least = (3 * (view.to - view.from)) / (width - gutter)
    lane.start.forEach((start, index) => {
      const away = Math.max(start - at, at - start - lane.duration[index], 0)
      const isShorter = lane.duration[index] < lane.duration[best]
      if (away < least || (!away && !least && isShorter)) [best, least] = [index, away]
    })
    return [best, least]
  }

  const rowAt = (px, py) =>
    px < gutter ? null : rows.find((one) => py >= one.y - 2 && py < one.y + one.height + 2)

  function found(px, py) {
    const row = rowAt(px, py)
    if (!row) return null
    const at = ns(px),
      [best, away] = nearest(row.lane, at)
    if (row.busy) {
      const busy = row.busy.find(([start, end]) => at >= start && at < end)
      if (busy) return [`GPU busy: ${time(busy[1] - busy[0])}`, `from ${time(busy[0])}`]
      if (row.others && (best < 0 || away > 0)) {
        const [other, off] = nearest(row.others, at)
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

  /** The interval of a stream at this place, or the first one that a call there launched. */
  function pickedAt(px, py) {
    const {step, lane} = rowAt(px, py) ?? {}
    if (!["gpu", "launch"].includes(lane?.kind)) return null
    const [at] = nearest(lane, ns(px))
    if (at < 0) return null
    return lane.kind === "gpu" ? {step, lane, at} : launchedBy(step, lane, at)
  }

  const panel = node("div", {class: "picked", role: "status"})
  const isPicked = (one) => one.lane === view.picked?.lane && one.at === view.picked.at
  /** Picks an interval of a stream; null closes it. */
  function pick(one) {
    view.picked = one
    describe()
    hideTip()
    redraw()
  }
  function describe() {
    panel.replaceChildren()
    if (!view.picked) return
    const facts = factsOf(data, view.picked).flatMap(([term, text]) => [
      node("dt", {}, term),
      node("dd", {}, text),
    ])
    const tools = node(
      "div",
      {class: "tools"},
      button("Previous", "Previous kernel (P)", () => walk(-1)),
      button("Next", "Next kernel (N)", () => walk(1)),
      button("Zoom", "Zoom to the kernel and its launch (Enter)", zoomToPicked),
      button("Close", "Close (Escape)", close),
    )
    const [name, , short] = labelOf(data, view.picked)
    panel.append(node("b", {}, short || name), node("dl", {}, ...facts), tools)
  }
  function close() {
    if (!view.picked) return
    view.named = null
    pick(null)
  }
  /** Picks the next of the intervals that stand out, or of all of them. */
  function walk(by) {
    const all = data.steps.flatMap(onStreams),
      some = all.filter(outstanding() ?? (() => true))
    if (!some.length) return
    const first = some.findIndex((one) => startOf(one) >= view.from),
      here = view.picked ? some.findIndex(isPicked) : Math.max(first, 0) - by
    pick(some.at((here + by) % some.length))
    const start = startOf(view.picked)
    if (start < view.from || start > view.to) move((start - view.from) / (view.to - view.from) - 0.5)
    comeIntoView()
  }
  const comeIntoView = () => host.closest("figure").scrollIntoView({block: "nearest"})
  function zoomToPicked() {
    if (!view.picked) return walk(1)
    const call = launchOf(view.picked) ?? view.picked,
      start = Math.min(startOf(call), startOf(view.picked)),
      end = startOf(view.picked) + lengthOf(view.picked)
    show(start - (end - start) / 3, end + (end - start) / 3)
  }
  /** Intervals whose name, line or module holds the text stand out. How many there are. */
  function find(text) {
    view.found = text ? matching(data, text) : null
    redraw()
    const all = data.steps.flatMap((step) => intervalsOf(step, step.lanes))
    return all.filter(view.found ?? (() => false)).reduce((sum, one) => sum + countOf(one), 0)
  }
  const isNamed = (name) => (one) => one.lane.kind === "gpu" && labelOf(data, one)[0] === name
  const outstanding = () => view.found ?? (view.named === null ? null : isNamed(view.named))
  const named = (name) => data.steps.flatMap(onStreams).filter(isNamed(name))
  /** Picks the longest interval of this name, the others stand out; a second time it closes. */
  function pickNamed(name) {
    if (view.picked && view.named === name) return close()
    view.named = name
    pick(named(name).reduce((best, one) => (lengthOf(one) > lengthOf(best) ? one : best)))
    comeIntoView()
    canvas.focus({preventScroll: true})
  }
  const has = (name) => named(name).length > 0
  timelines.set(host, {find, has, pickNamed, walk, close})

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
  let isClick = false // nothing moved since
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, [event.clientX, event.clientY])
    isClick = down.size === 1
    canvas.setPointerCapture(event.pointerId)
    hold()
  })
  canvas.addEventListener("pointermove", (event) => {
    if (down.has(event.pointerId)) {
      isClick &&= Math.abs(event.clientX - grip.center) < 6
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
  canvas.addEventListener("pointerup", (event) => {
    if (!isClick || event.button) return
    const box = canvas.getBoundingClientRect(),
      one = pickedAt(event.clientX - box.left, event.clientY - box.top)
    if (one && !isPicked(one)) pick(one)
    else close()
  })
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
    n: () => walk(1),
    p: () => walk(-1),
    Enter: zoomToPicked,
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
  const help = "Ctrl and wheel to zoom, drag to move, or use \u2190 \u2192 + \u2212 0. Click a kernel, or press N, to see its launch."
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
  describe()
  host.replaceChildren(tools, canvas, panel, legend(tones))
  draw()
}
