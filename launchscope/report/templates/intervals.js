// What the timeline draws: the lanes of its steps, and their intervals as {step, lane, at}.

const countOf = ({lane, at}) => lane.count[at] ?? 1
const labelOf = ({labels}, {lane, at}) => labels[lane.label[at]] // name, kind and short name
const startOf = ({lane, at}) => lane.start[at]
const lengthOf = ({lane, at}) => lane.duration[at]
const intervalsOf = (step, lanes) =>
  lanes.flatMap((lane) => lane.start.map((_, at) => ({step, lane, at})))
const lanesOf = (step, kind) => step.lanes.filter((lane) => lane.kind === kind)

/** What ran on the GPU, by start. */
const onStreams = (step) =>
  intervalsOf(step, lanesOf(step, "gpu")).sort((one, other) => startOf(one) - startOf(other))

/** The call that launched an interval of a stream; undefined where it is not known. */
function launchOf({step, lane, at}) {
  let left = lane.launch[at] ?? -1
  if (left < 0) return undefined
  return intervalsOf(step, lanesOf(step, "launch")).find((call) => (left -= countOf(call)) < 0)
}

/** The first interval of a stream that a call launched. */
function launchedBy(step, lane, at) {
  const calls = intervalsOf(step, lanesOf(step, "launch")),
    place = calls.findIndex((call) => call.lane === lane && call.at === at),
    before = calls.slice(0, place).reduce((sum, call) => sum + countOf(call), 0),
    until = before + countOf(calls[place])
  const isIts = (number) => number >= before && number < until
  return onStreams(step).find((one) => isIts(one.lane.launch[one.at] ?? -1)) ?? null
}

/** Whether the name, the line or the module of an interval holds the text. */
function matching({labels}, text) {
  const holds = (name) => name.toLowerCase().includes(text)
  const known = new Map()
  const once = (key, names) => {
    if (!known.has(key)) known.set(key, names.some(holds))
    return known.get(key)
  }
  return ({step, lane, at}) => {
    const label = labels[lane.label[at]],
      source = step.sources[lane.source[at]]
    return once(label, [label[0], label[2]]) || (source !== undefined && once(source, source))
  }
}

/** Terms and texts of an interval of a stream. */
function factsOf(data, one) {
  const {step, lane, at} = one,
    call = launchOf(one),
    [line, module, forward] = step.sources[lane.source[at]] ?? ["", "", ""],
    same = onStreams(step).filter((other) => other.lane.label[other.at] === lane.label[at])
  const total = same.reduce((sum, other) => sum + lengthOf(other), 0)
  const span = (one) => `${time(lengthOf(one))} from ${time(startOf(one))}`
  const merged = (one, noun) =>
    countOf(one) > 1 ? `. ${countOf(one)} ${noun} are drawn as one` : ""
  const facts = [["GPU", `${span(one)}, ${lane.name}${lane.of}${merged(one, "kernels")}`]]
  if (call) {
    const [name] = labelOf(data, call),
      delay = startOf(one) - startOf(call) - lengthOf(call)
    facts.push(["Launch", `${name}, ${span(call)}, ${call.lane.of}${merged(call, "calls")}`])
    if (countOf(one) === 1 && countOf(call) === 1)
      facts.push(["Delay", `${time(Math.abs(delay))} ${delay < 0 ? "before" : "after"} the call returns`])
  } else facts.push(["Launch", "not known"])
  const backward = forward && `, in the backward of ${forward}`
  if (!line && call && labelOf(data, call)[1] === "graph")
    facts.push(["Line", "that of the capture: a graph replay runs no line of the script"])
  else facts.push(["Line", line ? line + backward : "not known"], ["Module", module || "not known"])
  const isExact = same.every((other) => countOf(other) === 1)
  facts.push([step.title, `${isExact ? "" : "at least "}${same.length} times, ${time(total)}`])
  facts.push(["Name", labelOf(data, one)[0]])
  return facts
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
      const row = {y: height, height: LANE[lane.kind], step, lane, name}
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
