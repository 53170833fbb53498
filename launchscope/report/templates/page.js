"use strict"
// What every figure uses: elements, colors, patterns, the tooltip. Then the page itself: theme,
// tables. Texts of a script or a trace are only ever inserted as text.

const SVG = "http://www.w3.org/2000/svg"
const root = document.documentElement
const tip = document.getElementById("tip")
const probe = document.body.appendChild(document.createElement("i"))
const narrow = matchMedia("(max-width: 560px)")
const drawers = {} // by kind: (host, data) => {}, called again for every size and theme

function node(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS(SVG, tag.slice(4))
    : document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

/** The value of a color of the style sheet in the theme that is shown. */
function color(name) {
  probe.style.color = `var(--${name})`
  return getComputedStyle(probe).color
}

const ruler = document.createElement("canvas").getContext("2d")
function textWidth(text, font = "12px system-ui, sans-serif") {
  ruler.font = font
  return ruler.measureText(text).width
}

/** The text, with an ellipsis in its middle where it is wider than this. */
function cut(text, width) {
  if (textWidth(text) <= width) return text
  let low = 0,
    high = text.length
  while (low < high) {
    const half = Math.ceil((low + high) / 2)
    if (textWidth(text.slice(0, half) + "\u2026") <= width) low = half
    else high = half - 1
  }
  return low > 1 ? text.slice(0, low) + "\u2026" : ""
}

function time(ns) {
  if (ns === 0) return "0"
  const power = Math.min(Math.max(Math.floor(Math.log10(Math.abs(ns)) / 3), 0), 3)
  return `${+(ns / 1000 ** power).toPrecision(4)} ${["ns", "us", "ms", "s"][power]}`
}

// A tone has a color, and a pattern for those who do not see the difference: lines of an 8 x 8 tile.
const PATTERNS = {
  framework: "M-2 2L2 -2M0 8L8 0M6 10L10 6",
  launch_call: "M-2 6L2 10M0 0L8 8M6 -2L10 2",
  sync: "M2 2h2v2h-2zM6 6h2v2h-2z",
  data: "M0 2H8M0 6H8",
  setup: "M1 1h6v6h-6z",
  dispatch: "M2 0V8M6 0V8",
  paused: "M0 4H8M4 0V8",
  unattributed: "M3 3h1v1h-1z",
  other: "M-2 2L2 -2M0 8L8 0M6 10L10 6",
}

const defs = document.body.appendChild(node("svg:svg", {class: "defs", "aria-hidden": "true"}))
for (const [tone, d] of Object.entries(PATTERNS)) {
  const tile = {id: `tone-${tone}`, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
    ground = node("svg:rect", {width: 8, height: 8, fill: `var(--${tone})`})
  defs.append(node("svg:pattern", tile, ground, node("svg:path", {d, class: "motif"})))
}
const fill = (tone) => (tone in PATTERNS ? `url(#tone-${tone})` : `var(--${tone})`)

function swatch(tone) {
  const box = {class: "swatch", width: 14, height: 14, "aria-hidden": "true"}
  return node("svg:svg", box, node("svg:rect", {width: 14, height: 14, rx: 3, fill: fill(tone)}))
}

function legend(entries) {
  const items = entries.map(([tone, label, figure]) =>
    node("li", {}, swatch(tone), label, ...(figure ? [node("b", {}, figure)] : [])),
  )
  return node("ul", {class: "legend"}, ...items)
}

function showTip(x, y, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, at) => node(at ? "div" : "b", {}, line)))
  tip.hidden = false
  const box = tip.getBoundingClientRect()
  const left = Math.min(x + 14, innerWidth - box.width - 8)
  const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18
  tip.style.left = `${Math.max(8, left)}px`
  tip.style.top = `${Math.max(8, top)}px`
}

function hideTip() {
  tip.hidden = true
}

/** Shows the lines while the pointer or the keyboard is on an element. */
function explain(element, lines) {
  element.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, lines))
  element.addEventListener("pointerleave", hideTip)
  element.setAttribute("tabindex", 0)
  element.setAttribute("role", "img")
  element.setAttribute("aria-label", lines.filter(Boolean).join(", "))
  element.addEventListener("focus", () => {
    const box = element.getBoundingClientRect()
    showTip(box.left + box.width / 2, box.bottom - 12, lines)
  })
  element.addEventListener("blur", hideTip)
  return element
}

function setUpTheme() {
  const button = document.getElementById("theme"),
    system = matchMedia("(prefers-color-scheme: dark)")
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches)
  const show = () => {
    button.setAttribute("aria-pressed", isDark())
    button.textContent = isDark() ? "Light" : "Dark"
    drawAll()
  }
  button.hidden = false
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark"
    show()
  })
  system.addEventListener("change", show)
  show()
}

/** A table that is too wide becomes blocks. Keys scroll only what has the focus. */
function fitTables(part = document) {
  for (const box of part.querySelectorAll(".scroll")) {
    const {classList} = box.firstElementChild
    classList.remove("stacked")
    classList.toggle("stacked", box.scrollWidth > box.clientWidth)
    if (box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight) continue
    const heading = box.closest("section, .part").querySelector("h2").textContent
    const told = {tabindex: 0, role: "region", "aria-label": heading}
    for (const [name, value] of Object.entries(told)) box.setAttribute(name, value)
  }
}

function setUpTables() {
  for (const table of document.querySelectorAll("table:has(thead)")) {
    const labels = [...table.tHead.rows[0].cells].map((head) => head.textContent)
    for (const {cells} of table.tBodies[0].rows)
      labels.forEach((label, at) => label && (cells[at].dataset.label = label))
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0]
    table.querySelectorAll("thead th").forEach((head, at) => {
      if (!body.rows[0].cells[at].hasAttribute("data-value")) return
      const button = node("button", {type: "button"}, head.textContent)
      head.replaceChildren(button)
      button.addEventListener("click", () => {
        const first = body.rows[0].cells[at].dataset.value
        const isNumber = first !== "" && !isNaN(first)
        const upwards = head.ariaSort ? head.ariaSort === "descending" : !isNumber
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort")
        head.setAttribute("aria-sort", upwards ? "ascending" : "descending")
        const value = (row) => row.cells[at].dataset.value
        const order = (a, b) => (isNumber ? value(a) - value(b) : value(a).localeCompare(value(b)))
        body.append(...[...body.rows].sort((a, b) => (upwards ? order(a, b) : order(b, a))))
      })
    })
  }
  for (const code of document.querySelectorAll("[data-full]")) {
    const label = `Copy ${code.dataset.name ?? "the full name"}`,
      button = node("button", {type: "button", class: "copy", "aria-label": label}, "Copy")
    const say = (word) => (button.textContent = word)
    button.addEventListener("click", async () => {
      const copied = navigator.clipboard.writeText(code.dataset.full)
      await copied.then(() => say("Copied"), () => say("Failed"))
      setTimeout(() => say("Copy"), 1500)
    })
    code.after(button)
  }
}

/** Rows and intervals that hold the text: others are hidden, or fade. */
function setUpSearch() {
  const field = document.getElementById("search"),
    found = document.getElementById("found"),
    rows = [...document.querySelectorAll(".part tbody tr")].filter((row) => row.querySelector("code"))
  if (!rows.length && !timelines.size) return
  field.parentElement.hidden = false
  const textOf = (row) =>
    `${row.textContent} ${row.querySelector("[data-full]")?.dataset.full ?? ""}`.toLowerCase()
  const texts = new Map(rows.map((row) => [row, textOf(row)]))
  const search = () => {
    const text = field.value.trim().toLowerCase()
    for (const row of rows) row.hidden = !texts.get(row).includes(text)
    const kept = rows.filter((row) => !row.hidden)
    if (text) for (const row of kept) row.closest(".part").open = true
    const drawn = [...timelines.values()].reduce((sum, {find}) => sum + find(text), 0),
      parts = [`${kept.length} in tables`, ...(timelines.size ? [`${drawn} in the timeline`] : [])]
    found.textContent = text ? parts.join(", ") : ""
  }
  field.addEventListener("input", search)
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") for (const {walk} of timelines.values()) walk(event.shiftKey ? -1 : 1)
    if (event.key !== "Escape") return
    if (!field.value) field.blur()
    field.value = ""
    search()
  })
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input") || event.ctrlKey || event.metaKey) return
    event.preventDefault()
    field.focus()
    field.select()
  })
}

/** A click on a kernel of a table picks it in the timeline; Escape leads back. */
function setUpPicking() {
  let from = null // the name whose interval is picked
  for (const code of document.querySelectorAll("td [data-full]")) {
    const {full} = code.dataset
    if (![...timelines.values()].some(({has}) => has(full))) continue
    for (const [name, value] of Object.entries({tabindex: 0, role: "button"}))
      code.setAttribute(name, value)
    const row = code.closest("tr")
    row.classList.add("pickable")
    const pick = () => {
      from = code
      for (const {pickNamed} of timelines.values()) pickNamed(full)
    }
    row.addEventListener("click", (event) => event.target.closest("button") || pick())
    code.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return
      event.preventDefault()
      pick()
    })
  }
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.target.matches("input")) return
    hideTip()
    for (const {close} of timelines.values()) close()
    from?.focus()
    from = null
  })
}

/** A narrow page begins with the answer: what only some look at is folded, but on paper. */
function setUpParts() {
  const parts = [...document.querySelectorAll(".part")]
  const unfold = (all) => parts.forEach((part) => (part.open = all))
  narrow.addEventListener("change", () => unfold(!narrow.matches))
  addEventListener("beforeprint", () => unfold(true))
  for (const part of parts) part.addEventListener("toggle", () => fitTables(part))
  unfold(!narrow.matches)
}

/** Parts whose tables get hardly taller in half of the page stand side by side. Of an odd number in a
 * row, the last keeps the whole: nothing moves before a part that is no table. */
function placeParts() {
  const parts = [...document.querySelector("main").children]
  for (const part of parts) part.classList.remove("half")
  for (const table of document.querySelectorAll(".stacked")) table.classList.remove("stacked")
  const isWide = (table) => table.offsetWidth > table.parentElement.clientWidth
  const isHalf = (part, tables) => {
    const height = () => tables.reduce((sum, table) => sum + table.offsetHeight, 0)
    const whole = height()
    part.classList.add("half")
    return part.classList.toggle("half", height() < 1.2 * whole && !tables.some(isWide))
  }
  const halves = []
  for (const part of narrow.matches ? [] : [...parts, null]) {
    const tables = [...(part?.querySelectorAll(":scope > .scroll > table") ?? [])]
    if (tables.length && isHalf(part, tables)) halves.push(part)
    else if (!tables.length) {
      if (halves.length % 2) halves.at(-1).classList.remove("half")
      halves.length = 0
    }
  }
  fitTables()
}

const figures = JSON.parse(document.getElementById("data").textContent)

function drawAll() {
  hideTip()
  for (const host of document.querySelectorAll("[data-figure]")) {
    const {kind, data} = figures[host.dataset.figure]
    drawers[kind](host.querySelector(".drawn"), data)
  }
}

document.addEventListener("DOMContentLoaded", () => {
  setUpParts()
  setUpTheme()
  setUpTables()
  placeParts()
  setUpSearch()
  setUpPicking()
  let width = innerWidth
  addEventListener("resize", () => {
    if (innerWidth === width) return // a phone's address bar changes the height only
    width = innerWidth
    requestAnimationFrame(() => {
      placeParts()
      drawAll()
    })
  })
  addEventListener("scroll", hideTip, {passive: true})
})
