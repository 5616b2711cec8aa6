// The colours of communities: twelve that differ in both themes, and the one of users without a community.

const LIGHT = "#1f5fd0 #c9540a #1e8a3c #a566f0 #c81e3a #0f9aa0 #6b3d12 #e0489c #8a8400 #2b2080 #4a97e0 #7a1460".split(
  " ",
);
const DARK = "#4f86ff #ff9147 #3fb65f #b07cff #ff4d5e #25d5d0 #b0875c #ff9ed2 #e8dc3c #8a94c8 #a5dcff #c8409a".split(
  " ",
);
const NONE = ["#5a6472", "#9aa4b2"];

// Communities of the first mixture before others, large ones before small ones.
export const inOrder = (a, b) => (a.mixture ?? 0) - (b.mixture ?? 0) || b.members - a.members;

// One colour a community. Beyond twelve one gets the colour that is farthest away, by the centres of those that have it.
export function chooseColours(communities) {
  const chosen = new Map();
  for (const one of [...communities].sort(inOrder)) {
    const nearest = LIGHT.map(() => Infinity);
    for (const [other, colour] of chosen) {
      nearest[colour] = Math.min(nearest[colour], Math.hypot(other.x - one.x, other.y - one.y));
    }
    chosen.set(one, nearest.indexOf(Math.max(...nearest)));
  }
  return new Map([...chosen].map(([one, colour]) => [one.community, colour]));
}

export const cssColour = (colour) =>
  colour === undefined ? `light-dark(${NONE.join()})` : `light-dark(${LIGHT[colour]}, ${DARK[colour]})`;

const bytes = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The colours of all communities as the bytes of a texture of 256 × 256; the last one is that of no community.
export function paletteTexture(colours, dark) {
  const texture = new Uint8Array(4 * 65536);
  for (const [community, colour] of colours) texture.set(bytes((dark ? DARK : LIGHT)[colour]), 4 * community);
  texture.set(bytes(NONE[Number(dark)]), 4 * 65535);
  return texture;
}
