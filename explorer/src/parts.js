// Small pieces that every view uses: figures as text, swatches, bars, lists, a search box, and asking the source.

import { h } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import htm from "htm";
import { cssColour } from "./colours.js";

export const html = htm.bind(h);

export const count = (value) => value.toLocaleString("en");
export const many = (value, word, plural = `${word}s`) => `${count(value)} ${value === 1 ? word : plural}`;
const minus = (text) => text.replace("-", "−");
export const percent = (share) => {
  const value = 100 * share;
  if (value > 0 && value < 0.05) return "<\u00a00.1\u00a0%";
  return minus(`${value !== 0 && Math.abs(value) < 1 ? value.toFixed(1) : value.toFixed(0)}\u00a0%`);
};
export const figure = (score) => minus(Math.abs(score) < 100 ? score.toPrecision(3) : score.toFixed(0));
export const titleOf = (item) => (item.title === undefined || item.title === null ? String(item.item) : item.title);

// Asks again whenever the key changes, the first time at once. The last answer stays until the next one is there; a
// reply that is no longer wanted is dropped.
export function useAnswer(ask, key, delay = 0) {
  const [answer, setAnswer] = useState({ busy: true });
  const asked = useRef(false);
  useEffect(() => {
    let wanted = true;
    setAnswer((last) => ({ ...last, busy: true }));
    const start = async () => {
      try {
        const data = await ask();
        if (wanted) setAnswer({ data, busy: false });
      } catch (error) {
        if (wanted) setAnswer({ error, busy: false });
      }
    };
    const timer = asked.current && delay ? setTimeout(start, delay) : start();
    asked.current = true;
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [key]);
  return answer;
}

export const Failure = ({ error }) => html`<p class="failure" role="alert">${error.message}</p>`;

// Caveats of a reply or of a model.
export const Notes = ({ notes }) =>
  (notes ?? []).map((one) => html`<p class="facts" key=${`${one.kind} ${one.text}`}>Note: ${one.text}</p>`);

export function Swatch({ colour }) {
  return html`<span class="swatch" style=${{ "--colour": cssColour(colour) }}></span>`;
}

export function Bar({ share, colour }) {
  const width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return html`<span class="bar" aria-hidden="true">
    <span style=${{ width, "--colour": colour }}></span>
  </span>`;
}

// A ranked list of items, each with a figure and what comes below it.
export function Items({ items, value = (item) => figure(item.score), below, marked = () => false }) {
  return html`<ol class="items">
    ${items.map(
      (item) =>
        html`<li key=${String(item.item)} class=${marked(item) ? "marked" : ""}>
          <span class="title" title=${String(item.item)}>${titleOf(item)}</span>
          <span class="value">${value(item)}</span>
          ${below?.(item)}
        </li>`,
    )}
  </ol>`;
}

// A text box with a list of what it finds: arrows choose, Enter takes, Escape closes.
export function SearchBox({ label, placeholder, find, onChoose, clearLabel }) {
  const id = useId();
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const [open, setOpen] = useState(false);
  const query = text.trim();
  const found = useAnswer(async () => (query ? { query, options: await find(query) } : null), query, 150);
  const options = found.data?.options ?? [];
  const shown = open && query !== "";
  const waiting = useRef(null);
  const choose = (option) => {
    setText("");
    setOpen(false);
    onChoose(option);
  };
  // Enter before the results are there takes the first one when they come.
  useEffect(() => {
    setActive(0);
    if (!found.data || found.data.query !== waiting.current) return;
    waiting.current = null;
    if (options.length) choose(options[0]);
  }, [found.data]);
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (options.length) setActive((active + step + options.length) % options.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const typed = event.target.value.trim(); // may be newer than the last rendering
      if (found.data?.query !== typed) waiting.current = typed;
      else if (shown && options[active]) choose(options[active]);
    } else if (event.key === "Escape") {
      setOpen(false);
    }
  };
  useEffect(() => {
    document.getElementById(`${id}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [active]);
  const says = !shown || found.busy ? "" : options.length ? many(options.length, "result") : "Nothing found";
  return html`<div class="search">
    <label for=${id} class=${clearLabel ? "" : "unseen"}>${label}</label>
    <input
      id=${id}
      type="text"
      role="combobox"
      autocomplete="off"
      spellcheck=${false}
      placeholder=${placeholder}
      aria-autocomplete="list"
      aria-expanded=${String(shown && options.length > 0)}
      aria-controls=${`${id}-list`}
      aria-activedescendant=${shown && options.length ? `${id}-${active}` : undefined}
      value=${text}
      onInput=${(event) => {
        setText(event.target.value);
        setOpen(true);
        waiting.current = null;
      }}
      onKeyDown=${onKeyDown}
      onBlur=${() => setOpen(false)}
    />
    <ul id=${`${id}-list`} role="listbox" aria-label=${label} hidden=${!shown || !options.length}>
      ${options.map(
        (option, place) =>
          html`<li
            key=${option.key}
            id=${`${id}-${place}`}
            role="option"
            aria-selected=${String(place === active)}
            onMouseDown=${(event) => event.preventDefault()}
            onClick=${() => choose(option)}
          >
            <span>${option.text}</span><small>${option.kind}</small>
          </li>`,
      )}
    </ul>
    ${shown && found.error && html`<${Failure} error=${found.error} />`}
    ${shown && !found.busy && !found.error && !options.length && html`<p class="nothing">Nothing found</p>`}
    <span class="unseen" role="status">${says}</span>
  </div>`;
}

// A long list shows its first entries until the rest is wanted.
export function useFirst(entries, few) {
  const [all, setAll] = useState(false);
  const rest = entries.length - few;
  const more =
    rest > 0 &&
    html`<button type="button" class="quiet" onClick=${() => setAll(!all)} aria-expanded=${String(all)}>
      ${all ? "Show fewer" : `Show all ${count(entries.length)}`}
    </button>`;
  return [all ? entries : entries.slice(0, few), more];
}
