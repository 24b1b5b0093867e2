// Draws docs/images/*.mmd as SVG with Mermaid, in Chromium: npm run site:drawings. With --check it names those that
// are behind their sources, and fails.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const FOLDER = fileURLToPath(new URL('../docs/images/', import.meta.url));
const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];

// Each color in light and in dark. A page that embeds the drawing chooses by its own `color-scheme`.
const COLORS = {
  text: ['#1f2328', '#e6e8eb'],
  line: ['#57606a', '#a0a8b0'],
  box: ['#fdf3f2', '#3a2422'],
  border: ['#b3261e', '#ff9d94'],
  note: ['#fff8dc', '#35301c'],
  area: ['#f6f8fa', '#22262b'],
};
const light = Object.fromEntries(Object.entries(COLORS).map(([name, [color]]) => [name, color]));
const font = 'system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif';

const SETTINGS = {
  startOnLoad: false,
  theme: 'base',
  deterministicIds: true,
  fontFamily: font,
  htmlLabels: false,
  flowchart: { htmlLabels: false, wrappingWidth: 320 },
  sequence: { mirrorActors: false, width: 130, actorMargin: 60 },
  themeVariables: {
    fontFamily: font,
    primaryColor: light.box,
    primaryTextColor: light.text,
    primaryBorderColor: light.border,
    lineColor: light.line,
    textColor: light.text,
    mainBkg: light.box,
    nodeBorder: light.border,
    clusterBkg: light.area,
    clusterBorder: light.line,
    titleColor: light.text,
    edgeLabelBackground: light.area,
    actorBkg: light.box,
    actorBorder: light.border,
    actorTextColor: light.text,
    actorLineColor: light.line,
    signalColor: light.line,
    signalTextColor: light.text,
    noteBkgColor: light.note,
    noteTextColor: light.text,
    noteBorderColor: light.line,
  },
};

const NAMES = readdirSync(FOLDER).flatMap((file) => (file.endsWith('.mmd') ? [file.slice(0, -4)] : []));

/** The line with which a drawing of this source begins. */
function markOf(source) {
  const parts = [JSON.stringify([SETTINGS, COLORS]), source];
  return `<!-- ${createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 16)} -->\n`;
}

const sourceOf = (name) => readFileSync(`${FOLDER}${name}.mmd`, 'utf8');

function check() {
  const behind = NAMES.filter((name) => {
    const svg = `${FOLDER}${name}.svg`;
    return !existsSync(svg) || !readFileSync(svg, 'utf8').startsWith(markOf(sourceOf(name)));
  });
  if (behind.length > 0) throw new Error(`Behind their sources: ${behind.join(', ')}. Run npm run site:drawings`);
}

/** Puts variables for the colors, and those for both schemes in front. */
function inBothSchemes(svg) {
  const variables = (index) =>
    Object.entries(COLORS)
      .map(([name, colors]) => `--${name}:${colors[index]}`)
      .join(';');
  const named = Object.entries(light).reduce((text, [name, color]) => {
    const [r, g, b] = [1, 3, 5].map((from) => Number.parseInt(color.slice(from, from + 2), 16));
    return text.replaceAll(new RegExp(`${color}|rgb\\(${r}, ?${g}, ?${b}\\)`, 'gi'), `var(--${name})`);
  }, svg);
  const style = `svg{${variables(0)}}@media (prefers-color-scheme: dark){svg{${variables(1)}}}`;
  return named.replace('<style>', `<style>${style}`);
}

async function draw() {
  const found = PROGRAMS.flatMap((program) => {
    try {
      return [execFileSync('which', [program], { encoding: 'utf8' }).trim()];
    } catch {
      return [];
    }
  });
  const executablePath = process.env.CHROMIUM ?? found[0];
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  try {
    const page = await browser.newPage();
    await page.addScriptTag({ path: createRequire(import.meta.url).resolve('mermaid/dist/mermaid.min.js') });
    for (const name of NAMES) {
      const source = sourceOf(name);
      const svg = await page.evaluate(
        async ([text, id, settings]) => {
          globalThis.mermaid.initialize(settings);
          const { svg: drawn } = await globalThis.mermaid.render(id, text);
          // As XML, which an image must be.
          const parsed = new DOMParser().parseFromString(drawn, 'text/html').querySelector('svg');
          const [, , width, height] = parsed.getAttribute('viewBox').split(' ');
          parsed.setAttribute('width', width);
          parsed.setAttribute('height', height);
          parsed.removeAttribute('style');
          return new XMLSerializer().serializeToString(parsed);
        },
        [source, name, SETTINGS],
      );
      writeFileSync(`${FOLDER}${name}.svg`, `${markOf(source)}${inBothSchemes(svg)}\n`);
    }
  } finally {
    await browser.close();
  }
}

if (process.argv.includes('--check')) check();
else await draw();
