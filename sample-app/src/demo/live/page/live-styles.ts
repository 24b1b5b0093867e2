/** Beside the styles of the report. */
export const LIVE_STYLES = `
h3 { margin-top: 1rem; }
.top { display: flex; flex-wrap: wrap; gap: .25rem 1rem; justify-content: space-between; align-items: baseline; }
.top h1 { margin: 0; }
#connection { color: var(--muted); }
#connection.away { color: var(--bad); font-weight: 600; }
form, .figures { display: grid; gap: .75rem 1rem; grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr)); margin: .75rem 0 0; }
form .wide { grid-column: span 2; }
label { display: flex; flex-direction: column; gap: .2rem; color: var(--muted); font-size: .9rem; min-width: 0; }
input, select, button { font: inherit; color: var(--text); background: var(--page); border: 1px solid var(--muted); border-radius: .35rem; padding: .45rem .7rem; min-height: 2.75rem; max-width: 100%; }
input, select { width: 100%; }
button { cursor: pointer; }
button.primary { background: var(--left); border-color: var(--left); color: var(--panel); font-weight: 600; }
button:disabled { cursor: not-allowed; opacity: .55; }
:focus-visible { outline: 3px solid var(--left); outline-offset: 2px; }
.buttons { display: flex; flex-wrap: wrap; gap: .5rem; align-items: end; margin-top: .75rem; }
form .buttons { margin-top: 0; }
#problem { color: var(--bad); font-weight: 600; overflow-wrap: anywhere; }
#problem:not(:empty) { margin-top: .75rem; }
.figures { grid-template-columns: repeat(auto-fit, minmax(min(7rem, 100%), 1fr)); }
.figures dd { font-size: 1.7rem; line-height: 1.2; font-weight: 600; font-variant-numeric: tabular-nums; }
.figures .alarm dd, .figures .alarm dt { color: var(--bad); }
.facts { grid-template-columns: repeat(auto-fit, minmax(min(11rem, 100%), 1fr)); }
.facts dd { font-variant-numeric: tabular-nums; }
.legend .sold { --colour: var(--sold); }
.legend .left { --colour: var(--left); }
.legend .start { --colour: var(--text); --stroke: dashed; }
#processes, #grants, #refusals, #log { list-style: none; margin: .5rem 0 0; padding: 0; }
#processes { display: grid; gap: .75rem; }
#processes > li { border: 1px solid var(--line); border-left: .4rem solid var(--mark, var(--good)); border-radius: .35rem; padding: .6rem .75rem; }
#processes > .broken { --mark: var(--bad); }
#processes .who { display: flex; flex-wrap: wrap; gap: 0 .75rem; align-items: baseline; }
#processes .who strong { font-weight: 600; }
#processes .badge { font-weight: 600; }
#processes .broken .badge { color: var(--bad); }
#processes .counts { color: var(--muted); font-size: .9rem; font-variant-numeric: tabular-nums; }
#processes .buttons { margin-top: .4rem; }
#grants, #refusals { min-height: 3rem; font-size: .9rem; font-variant-numeric: tabular-nums; }
#happenings { height: 14rem; overflow-y: auto; }
#log li { padding: .15rem 0 .15rem .6rem; border-left: 3px solid var(--line); overflow-wrap: anywhere; }
#log time { color: var(--muted); font-variant-numeric: tabular-nums; margin-right: .5rem; }
#log .fault { border-color: var(--neutral); }
#log .good { border-color: var(--good); }
#log .bad { border-color: var(--bad); color: var(--bad); font-weight: 600; }
@media (max-width: 44rem) {
  form .wide { grid-column: 1 / -1; }
  form, .figures { grid-template-columns: 1fr 1fr; }
}
`;
