// Draws up to some 200,000 points by WebGL2, with pan, zoom and a search for the nearest point.

const VERTEX = `#version 300 es
in vec2 place;
in uint community;
uniform vec2 centre, scale;
uniform float size;
uniform int only, pass;
uniform highp sampler2D palette;
flat out vec4 colour;
flat out float width;
void main() {
  bool chosen = only < 0 || int(community) == only;
  gl_Position = chosen == (pass == 1) ? vec4((place - centre) * scale, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  width = only >= 0 && chosen ? size * 1.3 : size;
  gl_PointSize = width;
  int at = int(community);
  colour = vec4(texelFetch(palette, ivec2(at & 255, at >> 8), 0).rgb, chosen ? 0.85 : 0.18);
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
flat in vec4 colour;
flat in float width;
out vec4 shade;
void main() {
  float edge = (0.5 - length(gl_PointCoord - 0.5)) * width;
  float alpha = colour.a * clamp(edge + 0.5, 0.0, 1.0);
  shade = vec4(colour.rgb * alpha, alpha);
}`;
const MOST_ZOOM = 400;
const GRID = 256;

export class Scatter {
  // onView is called after every drawing, onPick with the index of the point that was clicked, onHover with that of the
  // point below the mouse or with -1.
  constructor(canvas, { onView, onPick, onHover }) {
    this.canvas = canvas;
    this.on = { onView, onPick, onHover };
    this.x = this.y = 0;
    this.zoom = 1;
    this.only = -1;
    this.pointers = new Map();
    this.gl = canvas.getContext("webgl2", { antialias: false, depth: false });
    this.listeners = new AbortController();
    if (this.gl) this.prepare();
    this.listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
    this.resize();
  }

  prepare() {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, text] of [
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, FRAGMENT],
    ]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.bindAttribLocation(program, 0, "place");
    gl.bindAttribLocation(program, 1, "community");
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(gl.getProgramInfoLog(program));
    }
    gl.useProgram(program);
    const names = ["centre", "scale", "size", "only", "pass"];
    this.at = Object.fromEntries(names.map((name) => [name, gl.getUniformLocation(program, name)]));
    this.placeBuffer = gl.createBuffer();
    this.communityBuffer = gl.createBuffer();
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.upload();
  }

  upload() {
    const gl = this.gl;
    if (!gl) return;
    if (this.palette) {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 256, 0, gl.RGBA, gl.UNSIGNED_BYTE, this.palette);
    }
    if (this.points?.users) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.placeBuffer);
      gl.bufferData(gl.ARRAY_BUFFER, this.points.places, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(0);
      gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.communityBuffer);
      gl.bufferData(gl.ARRAY_BUFFER, this.points.communities, gl.STATIC_DRAW);
      gl.enableVertexAttribArray(1);
      gl.vertexAttribIPointer(1, 1, gl.UNSIGNED_SHORT, 0, 0);
    }
    this.redraw();
  }

  show(points) {
    this.points = points;
    this.grid = undefined;
    this.upload();
    this.draw();
  }

  colour(palette) {
    this.palette = palette;
    this.upload();
  }

  // Shows the points of one community clearly and the others faintly; -1 shows all alike.
  focusOn(community) {
    this.only = community;
    this.redraw();
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    this.ratio = ratio;
    this.draw(); // at once: a canvas that changes its size is empty
  }

  // CSS pixels for one unit of the map.
  get unit() {
    return 0.47 * Math.min(this.width, this.height) * this.zoom;
  }

  toScreen(x, y) {
    return [this.width / 2 + (x - this.x) * this.unit, this.height / 2 - (y - this.y) * this.unit];
  }

  toMap(left, top) {
    return [this.x + (left - this.width / 2) / this.unit, this.y - (top - this.height / 2) / this.unit];
  }

  redraw() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    const { gl, at, points } = this;
    if (!this.width || !this.height) return;
    if (gl && !gl.isContextLost()) {
      gl.viewport(0, 0, this.canvas.width, this.canvas.height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT);
      if (points?.users && this.palette) {
        const room = Math.max(1, Math.min(this.width, this.height) / 900); // larger points on a large screen
        const size =
          room * Math.min(7, Math.max(2.2, 260 / Math.sqrt(points.users))) * Math.min(2.5, this.zoom ** 0.35);
        gl.uniform2f(at.centre, this.x, this.y);
        gl.uniform2f(at.scale, (2 * this.unit) / this.width, (2 * this.unit) / this.height);
        gl.uniform1f(at.size, size * this.ratio);
        gl.uniform1i(at.only, this.only);
        for (const pass of this.only < 0 ? [1] : [0, 1]) {
          gl.uniform1i(at.pass, pass);
          gl.drawArrays(gl.POINTS, 0, points.users);
        }
        this.canvas.dataset.drawn = points.users;
      }
    }
    this.on.onView(this);
  }

  reset() {
    this.x = this.y = 0;
    this.zoom = 1;
    this.redraw();
  }

  panBy(right, down) {
    this.x = Math.min(1.5, Math.max(-1.5, this.x - right / this.unit));
    this.y = Math.min(1.5, Math.max(-1.5, this.y + down / this.unit));
    this.redraw();
  }

  // Keeps the place under the given pixel where it is.
  zoomBy(factor, left = this.width / 2, top = this.height / 2) {
    const [x, y] = this.toMap(left, top);
    this.zoom = Math.min(MOST_ZOOM, Math.max(0.5, this.zoom * factor));
    const [nowX, nowY] = this.toMap(left, top);
    this.x += x - nowX;
    this.y += y - nowY;
    this.redraw();
  }

  // Brings a place into view, if it is not there.
  goTo(x, y) {
    const [left, top] = this.toScreen(x, y);
    if (left < 20 || top < 20 || left > this.width - 20 || top > this.height - 20) [this.x, this.y] = [x, y];
    this.redraw();
  }

  // The points in order of the cells of a grid over [-1, 1]², and where each cell begins.
  makeGrid() {
    const { places, users } = this.points;
    const cellOf = (point) => GRID * gridLine(places[2 * point + 1]) + gridLine(places[2 * point]);
    const starts = new Uint32Array(GRID * GRID + 1);
    for (let point = 0; point < users; point++) starts[cellOf(point) + 1]++;
    for (let cell = 0; cell < GRID * GRID; cell++) starts[cell + 1] += starts[cell];
    const order = new Uint32Array(users);
    const next = starts.slice();
    for (let point = 0; point < users; point++) order[next[cellOf(point)]++] = point;
    return { starts, order };
  }

  // The index of the point nearest to a pixel, at most so many pixels away; -1 where there is none.
  nearest(left, top, reach = 10) {
    if (!this.points?.users) return -1;
    this.grid ??= this.makeGrid();
    const { places, communities } = this.points;
    const { starts, order } = this.grid;
    const [x, y] = this.toMap(left, top);
    const radius = reach / this.unit;
    let [best, least] = [-1, radius * radius];
    for (let line = gridLine(y - radius); line <= gridLine(y + radius); line++) {
      const first = starts[GRID * line + gridLine(x - radius)];
      const last = starts[GRID * line + gridLine(x + radius) + 1];
      for (let at = first; at < last; at++) {
        const point = order[at];
        if (this.only >= 0 && communities[point] !== this.only) continue;
        const away = (places[2 * point] - x) ** 2 + (places[2 * point + 1] - y) ** 2;
        if (away < least) [best, least] = [point, away];
      }
    }
    return best;
  }

  listen() {
    const { canvas, pointers } = this;
    const hear = (name, act, more = {}) =>
      canvas.addEventListener(name, act, { signal: this.listeners.signal, ...more });
    const where = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const span = () => {
      const [[a, b], [c, d]] = pointers.values();
      return { length: Math.hypot(a - c, b - d), middle: [(a + c) / 2, (b + d) / 2] };
    };
    let moved = 0;
    hear("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      if (!pointers.size) moved = 0;
      pointers.set(event.pointerId, where(event));
    });
    hear("pointermove", (event) => {
      const [left, top] = where(event);
      const before = pointers.get(event.pointerId);
      if (!before) return this.on.onHover(this.nearest(left, top));
      if (pointers.size === 2) {
        const old = span();
        pointers.set(event.pointerId, [left, top]);
        const now = span();
        this.panBy(now.middle[0] - old.middle[0], now.middle[1] - old.middle[1]);
        this.zoomBy(now.length / Math.max(old.length, 1), ...now.middle);
        moved = Infinity;
      } else {
        pointers.set(event.pointerId, [left, top]);
        moved += Math.hypot(left - before[0], top - before[1]);
        if (moved > 4) this.panBy(left - before[0], top - before[1]);
      }
      return undefined;
    });
    const release = (event) => {
      if (!pointers.delete(event.pointerId) || event.type !== "pointerup" || moved > 4) return;
      const found = this.nearest(...where(event), event.pointerType === "mouse" ? 10 : 18);
      if (found >= 0) this.on.onPick(found);
    };
    hear("pointerup", release);
    hear("pointercancel", release);
    hear("pointerleave", () => this.on.onHover(-1));
    hear(
      "wheel",
      (event) => {
        event.preventDefault();
        const lines = event.deltaMode ? 30 * event.deltaY : event.deltaY;
        this.zoomBy(Math.exp(Math.max(-1, Math.min(1, -lines / 300))), ...where(event));
      },
      { passive: false },
    );
    hear("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const acts = {
        ArrowLeft: () => this.panBy(40, 0),
        ArrowRight: () => this.panBy(-40, 0),
        ArrowUp: () => this.panBy(0, 40),
        ArrowDown: () => this.panBy(0, -40),
        "+": () => this.zoomBy(1.4),
        "=": () => this.zoomBy(1.4),
        "-": () => this.zoomBy(1 / 1.4),
        0: () => this.reset(),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    });
    hear("webglcontextlost", (event) => event.preventDefault());
    hear("webglcontextrestored", () => this.prepare());
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.listeners.abort();
    this.observer.disconnect();
  }
}

const gridLine = (value) => Math.max(0, Math.min(GRID - 1, Math.floor(((value + 1) / 2) * GRID)));
