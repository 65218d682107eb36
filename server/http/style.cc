// The style sheet of the status pages. Text has a contrast of 4.5 at least, marks of 3 (tests/server/http/charts_test.cc
// computes them). The colours of series are those of Okabe and Ito, darker on white.

#include "server/http/html.h"

namespace metp {

const char kStyle[] = R"css(
:root{color-scheme:light dark;
--bg:#f4f6f8;--surface:#ffffff;--line:#dfe3e8;--grid:#e9ecf0;--text:#161b22;--muted:#57606c;--link:#0a58b5;
--ok:#177245;--run:#0a63bd;--wait:#6a4fb0;--warn:#8f5a00;--bad:#b3261e;--off:#5c6672;
--s0:#0072b2;--s1:#b36b00;--s2:#00805f;--s3:#c2461b;--s4:#9c4a80;--s5:#5f6975;--s6:#7d6d00;--s7:#3d5a99;
--plan:#6b7683;--shadow:0 1px 2px rgba(20,30,45,.06)}
@media(prefers-color-scheme:dark){:root{
--bg:#0d1117;--surface:#151b23;--line:#2b333e;--grid:#232b35;--text:#e7ecf2;--muted:#9ba7b5;--link:#7ab8ff;
--ok:#4fc38a;--run:#6cb2ff;--wait:#b9a3f5;--warn:#e5b454;--bad:#ff8a80;--off:#9ba7b5;
--s0:#56b4e9;--s1:#e69f00;--s2:#22b78d;--s3:#ee7546;--s4:#d88bbd;--s5:#a7b2be;--s6:#d3c63f;--s7:#8fa8e8;
--plan:#94a0ae;--shadow:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--text);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans","DejaVu Sans",sans-serif}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
a:focus-visible,summary:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:3px}
code{font:12.5px/1.4 ui-monospace,"SFMono-Regular",Menlo,"Liberation Mono","DejaVu Sans Mono",monospace;background:var(--grid);padding:.1em .35em;border-radius:4px}
.skip{position:absolute;left:-99em}.skip:focus{left:1rem;top:.5rem}
header{display:flex;flex-wrap:wrap;align-items:center;gap:.25rem 1.25rem;padding:.7rem 1.5rem;background:var(--surface);border-bottom:1px solid var(--line)}
header p{margin:0;color:var(--muted);flex:1}
.brand{display:flex;align-items:center;gap:.5rem;font-weight:700;letter-spacing:.04em;color:var(--text)}
.brand svg{width:22px;height:22px;fill:none;stroke:var(--plan);stroke-width:1.6}.brand .dot{fill:var(--run);stroke:var(--surface)}
nav{display:flex;gap:1rem}nav span{color:var(--muted)}
main{max-width:1320px;margin:0 auto;padding:1.25rem 1.5rem 2rem}
footer{text-align:center;color:var(--muted);padding:0 0 1.5rem;font-size:12.5px}
h1{font-size:1.45rem;line-height:1.25;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1rem;margin:0}h3{font-size:.875rem;margin:0 0 .4rem;font-weight:600}.two>div>h3:not(:first-child){margin-top:1.1rem}
.lead{display:flex;flex-wrap:wrap;align-items:center;gap:.35rem .9rem;margin:0 0 1rem}
.lead p{margin:0;color:var(--muted);flex-basis:100%;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:.75rem;margin:0 0 1rem}
.tile,section,.card{background:var(--surface);border:1px solid var(--line);border-radius:10px;box-shadow:var(--shadow)}
.tile{padding:.7rem .9rem}.tile dt{color:var(--muted);font-size:12.5px}
.tile dd{margin:0}.tile b{display:block;font-size:1.4rem;line-height:1.35;font-weight:650;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile small{display:block;color:var(--muted);font-size:12.5px;font-variant-numeric:tabular-nums}
section{margin:0 0 1rem;padding:.9rem 1rem 1rem;min-width:0}
.head{display:flex;flex-wrap:wrap;align-items:baseline;justify-content:space-between;gap:.1rem 1rem;margin-bottom:.5rem}
.head p{margin:0;color:var(--muted);font-variant-numeric:tabular-nums}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:0 1rem}
section .two{gap:1rem 2.25rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{text-align:left;padding:.36rem .9rem .36rem 0;border-top:1px solid var(--grid);vertical-align:baseline;font-weight:400}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--muted);font-size:12.5px;border-top:0;white-space:nowrap;padding-top:0}
tbody th{font-weight:550}
.n{text-align:right;white-space:nowrap}
.n+:not(.n){padding-left:1rem}
section[aria-labelledby=devices] table{width:auto}section[aria-labelledby=devices] .n{padding-left:1.5rem}
.more,.note{color:var(--muted);margin:.6rem 0 0}.empty{color:var(--muted);margin:.4rem 0}
.dim{color:var(--muted)}.nowrap{white-space:nowrap}
.alert{border:1px solid var(--bad);border-left-width:5px;border-radius:8px;background:var(--surface);padding:.6rem .9rem;margin:0 0 1rem}
.badge{display:inline-flex;align-items:center;gap:.4em;white-space:nowrap;font-weight:550}
.badge i{width:.62em;height:.62em;border-radius:50%;background:currentColor}
.badge.warn i{border-radius:1px;transform:rotate(45deg)}.badge.bad i{border-radius:1px}
.badge.wait i,.badge.off i{background:none;border:2px solid currentColor}
.ok{color:var(--ok)}.run{color:var(--run)}.wait{color:var(--wait)}.warn{color:var(--warn)}.bad{color:var(--bad)}.off{color:var(--off)}
.meter{display:block;height:6px;border-radius:3px;background:var(--line);overflow:hidden;margin:.25rem 0 .3rem;min-width:70px}
.meter i{display:block;height:100%;background:currentColor;border-radius:3px}
td .meter{width:110px}td.n .meter{margin-left:auto}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1rem;margin:.45rem 0 0;padding:0;list-style:none;font-size:12.5px;font-variant-numeric:tabular-nums}
.legend li{display:inline-flex;align-items:center;gap:.4em}
.legend i{width:.8em;height:.8em;border-radius:2px;flex:none}.legend span{color:var(--muted)}
.legend i.line{height:0;border-top:2px dashed var(--plan);background:none;border-radius:0;width:1.2em}
.legend i.hollow{background:none!important;border:1.5px solid var(--plan)}
.multiples{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:.75rem}
.multiple{border:1px solid var(--grid);border-radius:8px;padding:.5rem .6rem .3rem}
.multiple p{margin:0;display:flex;justify-content:space-between;font-size:12.5px;font-variant-numeric:tabular-nums}
.multiple b{font-weight:650}
svg.chart{display:block;width:100%;height:auto}
.wide{overflow-x:auto}.wide>svg.chart{min-width:420px}
svg text{fill:var(--muted);font-size:11.5px;font-variant-numeric:tabular-nums}
svg text.v{fill:var(--text)}svg text.halo{fill:var(--text);paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}svg .g{stroke:var(--grid)}svg .axis{stroke:var(--line)}
svg .l{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
svg .band{opacity:.18}svg .area{stroke:var(--surface);stroke-width:1}
svg .ref{stroke:var(--plan);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
svg .hit{fill:transparent}svg .hit:hover{fill:var(--text);fill-opacity:.08}
svg .hollow{fill:none;stroke:var(--plan);stroke-width:1.3}
svg.spark{width:86px;height:22px;vertical-align:middle;margin-left:.5rem}
.fleet{display:block;width:100%;height:auto}
details{margin-top:.5rem}summary{color:var(--muted);cursor:pointer;font-size:12.5px}
.eight{grid-template-columns:repeat(8,1fr)}@media(max-width:1260px){.eight{grid-template-columns:repeat(4,1fr)}}@media(max-width:640px){.eight{grid-template-columns:repeat(2,1fr)}}
@media(max-width:640px){main{padding:1rem .75rem}header{padding:.6rem .75rem}}
@media print{nav,.skip{display:none}section{break-inside:avoid}}
)css";

}  // namespace metp
