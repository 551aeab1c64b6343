#!/bin/sh
# run-ablation --report: a dump as one page of HTML.  TAP on stdout.  Any Python will do: its own
# html.parser reads the page.
python=${PYTHON:-python3}
if ! "$python" -c 'import html.parser' 2>/dev/null; then
    echo "1..0 # SKIP no Python"
    exit 0
fi
. "${srcdir:-.}/tests/tap.sh"

# refuses SENTENCE ARGUMENTS...: status 2, one line, and no new file.
refuses() {
    sentence=$1
    shift
    ls -a >before
    exits 2 "$@" && says "$sentence" && test "$(wc -l <out)" = 1 && ls -a | cmp -s - before
}
# page FILE EXPRESSION: of `text`, what a reader sees; `rows`, its tables' rows as lists of cells;
# and `source`.  The page must be well-formed, and need nothing from elsewhere.
cat >page.py <<'END'
import html.parser, re, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.rows, self.cell = [], [], [], None
    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object", "base"), tag
        for name, value in attributes:
            assert name not in ("src", "srcset", "data", "action", "style") and name[:2] != "on", name
            assert name not in ("href", "xlink:href") or value[0] == "#", value
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = []
    def handle_startendtag(self, tag, attributes):
        assert "svg" in self.open, tag
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())
        if tag in ("td", "th"):
            self.rows[-1].append("".join(self.cell))
            self.cell = None
    def handle_data(self, data):
        if "style" in self.open:
            assert "url(" not in data and "@import" not in data
        else:
            self.text.append(data)
            if self.cell is not None:
                self.cell.append(data)
source = open(sys.argv[1], encoding="utf-8").read()
page = Page()
page.feed(source)
page.close()
text, rows = "".join(page.text), page.rows
assert page.open == [] and source.startswith("<!doctype html>") and '<html lang="en">' in source
assert "://" not in source
def near(cell, value):
    """A number of three digits."""
    return abs(float(cell) - value) <= 6e-3 * abs(value)
def records(name):
    lines = [l.rstrip("\n").split("\t") for l in open(name, encoding="utf-8") if l[0] not in "#\n"]
    head = lines[0]
    return [dict(zip(head, l)) for l in lines[1:] if len(l) == len(head)]
def seconds(cell):
    number, unit = cell.split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
END
page() {
    { cat page.py && printf 'assert %s\n' "$2"; } >now.py
    "$python" now.py "$1" >out 2>&1
}

# ---- verdicts ----

cat >small.ini <<'END'
[experiment]
name = small
checks = differences, properties
repeats = 2
[trial a<b & "c"]
op = softmax
rows = 3
columns = 5, 7
[trial tanh]
op = e74_cell
steps = 4
batch = 2
n_state = 3
END
"$program" --tsv small.ini >small.tsv 2>out
ok 'a dump' test -s small.h5
ok 'becomes a page beside it' exits 0 --report small.h5
ok 'which is named, with its length' says "wrote small.html, $(wc -c <small.html | tr -d ' ') bytes"
ok 'it is well-formed, with no script and nothing from elsewhere' page small.html True
ok 'it has light and dark, and narrow screens' page small.html \
    '"prefers-color-scheme:dark" in source and "viewport" in source and "max-width:40rem" in source'
ok 'its verdict is the run'"'"'s' page small.html \
    '"Passed: all %d checks" % sum(r["verdict"] == "pass" for r in records("small.tsv")) in text'
cat >>page.py <<'END'
def verdicts(name):
    """Each verdict of the run has a row in which error and bound are these."""
    wanted = [r for r in records(name) if r["bound"]]
    for r in wanted:
        assert any(row[:3] == [r["check"], (r["backend"] + " " + r["kernel"]), r["tensor"]] and
                   near(row[4], float(r["value"])) and near(row[5], float(r["bound"]))
                   for row in rows if len(row) == 10), r
    return len(wanted) > 10
END
ok 'it has the error and bound of each check' page small.html 'verdicts("small.tsv")'
ok 'a section'"'"'s name is text' page small.html \
    "'a<b & \"c\"' in text and 'a&lt;b &amp; &quot;c&quot;' in source"
ok 'and the ini text' page small.html "'n_state = 3' in text"
ok 'the plan has all trials' page small.html 'text.count("pass") > 3 and "e74_cell" in text'
ok 'figures have a text' page small.html \
    'source.count("<svg ") == sum(source.count("aria-label=\"" + w) for w in ("worst", "median", "mean"))'
cp small.html first.html
ok 'the page is replaced' exits 0 --report small.h5
ok 'by the same bytes' cmp first.html small.html
cp small.h5 other.h5
ok 'of a copy, to another place' exits 0 --report other.h5 -o there.html
ok 'the same bytes' cmp first.html there.html

# ---- a failed check: a tanh that is wrong ----

echo 'double tanh(double x) { return x / (x < 0 ? 1 - x : 1 + x); }' >tanh.c
${CC:-cc} -shared -fPIC -o tanh.so tanh.c
LD_LIBRARY_PATH="$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="tanh.so${LD_PRELOAD:+:$LD_PRELOAD}" \
    ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$program" --tsv \
    -t 'e74_cell steps=4 batch=2 n_state=3 checks=differences repeats=0' -o bad.h5 >bad.tsv 2>out
ok 'a run that fails' grep -q '	fail	' bad.tsv
ok 'has a page, too' exits 0 --report bad.h5
ok 'which says so first' page bad.html '"Failed: " in text[:text.index("Device")]'
ok 'with the words of the trial' page bad.html \
    'any(row[-2] == "fail" and row[-1].startswith("e74_cell state=") for row in rows)'
ok 'and in the table of the check' page bad.html \
    'any(row[3].endswith(" failed") for row in rows if len(row) == 13) and "class=\"bad\"" in source'

# ---- times ----

"$program" --tsv -t 'softmax rows=64,128 columns=256 measure=time' --goals report -o time.h5 >time.tsv 2>out
"$program" --report time.h5 >out 2>&1
cat >>page.py <<'END'
def times(name):
    wanted = [r for r in records(name) if r.get("median")]
    for r in wanted:
        assert any(row[:3] == [r["backend"], r["kernel"], r["pass"]] and len(row) > 7 and
                   abs(seconds(row[4]) / float(r["median"]) - 1) < 6e-3 for row in rows), r
    return len(wanted) >= 4
END
ok 'a page has the median of each time' page time.html 'times("time.tsv")'
grep -q '^[0-9]*	gpu' time.tsv && there=in || there="not in"
ok "and a roofline where there is a GPU alone" page time.html "'id=\"roofline\"' $there source"
ok 'an earlier schema' exits 0 --report "$srcdir/tests/ablate-1.h5" -o earlier.html
ok 'has a page' page earlier.html '"ref32" in text and any(len(row) > 7 for row in rows)'

# ---- settings compared ----

printf '[experiment]\nname = seeds\nrepeats = 2\n[trial]\nop = softmax\nrows = 3, 40\ncolumns = 5, 70
seed = 1, 2, 3\n[trial]\nop = silu\nrows = 4\ndim = 3\nseed = 1, 2\n' >seeds.ini
"$program" seeds.ini >out 2>&1
"$program" --summary seeds.h5 --csv >seeds.csv 2>out
"$program" --report seeds.h5 >out 2>&1
cat >>page.py <<'END'
import csv, math
def is_near(cell, row, name, unit):
    """A cell "12.3 ± 0.41 µs", and the record that the summary has."""
    mean, deviation = row[name + "_mean"], row[name + "_sd"]
    if not mean:
        return cell == "–"
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[cell.split()[-1]] if unit else 1
    found = (cell.rsplit(" ", 1)[0] if unit else cell).split(" ± ")
    return (math.isclose(float(found[0]) * scale, float(mean), rel_tol=6e-3) and
            math.isclose(float(found[1]) * scale, float(deviation), rel_tol=6e-2))
def compared(name):
    """The page has the rows of the summary, in its order."""
    wanted = list(csv.DictReader(open(name, newline="")))
    begin = source.index('<section id="compared">')
    section = Page()
    section.feed(source[begin:source.index("</section>", begin) + len("</section>")])
    found = [r for r in section.rows if r and r[0] != "Place"]
    assert len(found) == len(wanted) > 4, (len(found), len(wanted))
    for cells, row in zip(found, wanted):
        keys = [row[k] for k in ("rows", "columns") if row[k]]
        assert cells[1:-6] == keys + [row["backend"] + " " + row["kernel"], row["trials"], ""], (cells, row)
        assert is_near(cells[-6], row, "forward_s", True) and is_near(cells[-5], row, "backward_s", True), (cells, row)
        assert cells[-4] == "" and cells[-1] == row["failed"]
        assert is_near(cells[-3], row, "ratio", False) and is_near(cells[-2], row, "error", False), (cells, row)
    return True
END
ok 'a page compares settings as --summary does' page seeds.html 'compared("seeds.csv")'
ok 'with a figure for each time' page seeds.html \
    '4 < source.count("aria-label=\"mean time") == len(list(csv.DictReader(open("seeds.csv", newline=""))))'
ok 'on one axis' page seeds.html 'text.count("on a logarithmic axis from") == 2 and "mean ± standard deviation over seed" in text'
"$program" -t 'e74 proj=no_z,full steps=2 batch=1 dim=3 n_state=4 checks=none repeats=0' -o lacks.h5 >out 2>&1
"$program" --report lacks.h5 >out 2>&1
ok 'a setting that some trials lack, and that is one in all others, is no column' page lacks.html \
    '"<code>z_act=linear</code>" in source and ">proj</th>" in source and ">z_act</th>" not in source'
"$program" -t 'softmax rows=3 columns=5 repeats=1' -o one.h5 >out 2>&1
"$program" --report one.h5 >out 2>&1
ok 'one trial is compared with none' page one.html '"Settings compared" not in text'
"$program" --inputs 'softmax rows=5 columns=7 seed=1,2' -o given.h5 >out 2>&1
if "${PYTHON:-python3}" -c 'import h5py' 2>/dev/null; then
    "$PYTHON" -c '
import h5py
with h5py.File("given.h5", "r+") as f:
    for t in f["trial"].values():
        t["a\"<b>,c/y"] = t["in/x"][...]' >out 2>&1
    "$program" judge given.h5 >out 2>&1
    "$program" --report given.h5 >out 2>&1
    ok 'another program'"'"'s name is text' page given.html \
        "any(row[1] == 'a\"<b>,c given' and row[-1] == '2' for row in rows if len(row) == 7)"
fi

# ---- what verdicts see, and what would pass ----

cat >>page.py <<'END'
def sees():
    """The cells below each title Sees."""
    tables = [k for k, r in enumerate(rows) if "Sees" in r]
    return [r[rows[k].index("Sees")] for k in tables for r in rows[k + 1:]
            if len(r) == len(rows[k]) and "Sees" not in r]
END
"$program" --verbose -t 'rmsnorm rows=64 columns=256 dtype=bf16 repeats=0' -o power.h5 >out 2>&1
"$program" --report power.h5 >out 2>&1
ok 'a page says what would pass' page power.html '"Would pass: eps = 0; " in text'
"$program" -t 'rmsnorm rows=64 columns=256 dtype=bf16 repeats=0' -o plain.h5 >out 2>&1
"$program" --report plain.h5 >out 2>&1
ok 'where that was asked' page plain.html '"Would pass" not in text'
if "${PYTHON:-python3}" -c 'import h5py' 2>/dev/null; then
    "$PYTHON" -c '
import h5py
with h5py.File("power.h5", "r+") as f:
    t = f["trial/0001"]
    t.attrs["would_pass"] = "eps = <b>&\x1b[31m\nx" + "\u00fc" * 300 + "\n\nlast\n"
    t["mine/y"] = t["ref64/y"][...].astype("f4")' >out 2>&1
    ok 'a dump that was changed' exits 0 --report power.h5
    ok 'has its text as text' page power.html \
        '"Would pass: eps = <b>&" in text and "eps = &lt;b&gt;&amp;" in source and "; last." in text'
    ok 'and no control characters' page power.html 'all(c.isprintable() or c == "\n" for c in source)'
    raw() {
        test "$(LC_ALL=C tr -d '\n[:print:]\200-\377' <out | wc -c)" != 0
    }
    ok 'a summary of it' exits 0 --summary power.h5
    ok 'has none either' eval '! raw'
    ok 'nor has the judgement of results in it' exits 0 judge power.h5 --verbose --partial gradients
    ok 'any' eval '! raw'
    "$program" --report power.h5 >out 2>&1
    ok 'what a verdict sees is a number' page power.html \
        'any(r[:3] == ["parity", "mine given", "y"] for r in rows) and any(s != "–" and 0 < float(s) < 0.1 for s in sees())'
    "$PYTHON" -c '
import h5py, numpy
with h5py.File("power.h5", "r+") as f:
    t = f["trial/0001"]
    new = t["check"][...]
    names = [n for n in new.dtype.names if n != "samples" and not n.startswith("sees")]
    old = numpy.empty(new.shape, [(n, new.dtype.fields[n][0]) for n in names])
    for n in names:
        old[n] = new[n]
    del t["check"]
    t["check"] = old' >out 2>&1
    ok 'a dump of a version that did not say it' exits 0 --report power.h5
    ok 'has none' page power.html 'len(sees()) > 3 and set(sees()) == {"–"}'
    ok 'and can be compared' exits 0 --summary power.h5
    ok 'and judged' exits 0 judge power.h5 --partial gradients
    ok 'by which it says it' exits 0 --report power.h5
    ok 'of these results' page power.html 'len(set(sees())) > 1'
fi

# ---- an ablation ----

cat >small_ablation.ini <<'END'
[experiment]
name = ablation
measure = train
backends = ref32
baseline = z
[model z]
mixer = e74
proj = full
z_mod = row
nonlin = tanh
n_state = 4
width = 8
[model <b>&"x]
mixer = none
width = 8
[task parity]
task = parity
length = 8
eval = 8, 16
[task <i>&"t]
task = counter
modulus = 3
length = 8
[train]
updates = 6
batch = 4
lr = 1e-3, 1e-2
seed = 1 .. 3
eval_every = 2
eval_rows = 16
[trial]
model = z, <b>&"x
task = parity, <i>&"t
END
COLUMNS=200 "$program" small_ablation.ini >ablation.out 2>&1
cat >>page.py <<'END'
import itertools
def part(begin, end, at=0):
    """The page from a text to another."""
    first = source.index(begin, at)
    return source[first:source.index(end, first) + len(end)]
def parsed(text):
    p = Page()
    p.feed(text)
    p.close()
    assert p.open == []
    return p
def figures(label):
    """The figures of the section Ablation that have this text: of each the rows of its numbers, and its source."""
    found, section = [], part('<section id="ablation">', "</section>")
    for text in section.split("<figure")[1:]:
        text = "<figure" + text[:text.index("</figure>") + len("</figure>")]
        if 'aria-label="' + label + '"' in text:
            assert text.count("<details>") == text.count("In numbers") == 1, label
            assert text.index("</svg>") < text.index("<figcaption>") < text.index("<details>"), label
            found.append((parsed(text).rows, text))
    return found
def table(task):
    """The rows of a task's table."""
    return parsed(part("<table>", "</table>", source.index("<h3>" + task))).rows
def printed(name):
    """The lines of the program's tables, cut at their columns."""
    lines = open(name, encoding="utf-8").read().split("\n")
    heads = [k for k, l in enumerate(lines) if l.startswith("variant ")]
    return [[re.split("   *", l.strip()) for l in itertools.takewhile(lambda l: l and l[0] != " ", lines[k:])]
            for k in heads]
def as_printed(name, tasks):
    """The page has the numbers and words of the program's tables."""
    found = printed(name)
    assert len(found) == len(tasks)
    for lines, task in zip(found, tasks):
        rows = table(task)
        assert len(rows) == len(lines) > 1
        for line, row in zip(lines[1:], rows[1:]):
            shown = [c.strip().replace(" !", "!").replace("–", "-") for c in row]
            assert shown == line, (shown, line)
    return True
every = ["Training loss (nats)", "Validation accuracy", "The test by its length", "Validation by learning rate",
         "Share of seeds that solved the task, and that hold", "Metric by parameters", "Metric by bytes of state"]
heat = "<figure class=\"heat\">"
END
ok 'a small ablation' grep -q '24 runs, 0 diverged' ablation.out
ok 'has a page' exits 0 --report ablation.h5
ok 'with an ablation before what was learned' page ablation.html \
    'source.index("<section id=\"ablation\">") < source.index("<section id=\"learning\">") and ">Ablation</a>" in source'
ok 'which has the tables that the program prints' page ablation.html \
    'as_printed("ablation.out", ["parity", "&lt;i&gt;"])'
ok 'and the words of /pairs' page ablation.html \
    '[r[-1] for r in table("parity")[1:]] == ["–", "too few seeds"] and sum(r[-1] == "too few seeds" for r in rows if r[1:2] == ["z"]) == 2'
ok 'says how they came about' page ablation.html \
    'all(w in part("How the verdicts", "</p>") for w in ("better", "worse", "equal", "too few seeds", "no difference",
     "sign-flip", "Holm", "BCa", "paired by seed", "±0.01"))'
ok 'and has all pairs' page ablation.html \
    'sum(len(r) == 10 and r[0] == "<b>&\"x" and r[1] == "z" and r[3] == "3" for r in rows) == 3'
ok 'each figure is there for each task, with its numbers' page ablation.html \
    '[len(figures(f)) for f in every] == [2] * 7'
ok 'of all variants' page ablation.html \
    'all({"z", "<b>&\"x"} <= {r[0] for r in rows} for f in every for rows, _ in figures(f))'
ok 'a curve for each seed, and a median' page ablation.html \
    'all(t.count("curve thin") == 6 and t.count("curve thick") == 2 and t.count("class=\"band") == 2 for f in every[:2]
     for _, t in figures(f))'
ok 'medians lie between quartiles' page ablation.html \
    'all(float(r[3]) <= float(r[4]) <= float(r[5]) for f in every[:2] for rows, _ in figures(f) for r in rows[1:])'
ok 'points for each seed at each length' page ablation.html \
    '[t.count("<circle") for _, t in figures(every[2])] == [12, 6]'
ok 'of which the mean is one' page ablation.html \
    'all(float(r[3]) <= float(r[2]) <= float(r[4]) and abs(float(r[2]) - sum(map(float, r[5].split())) / 3) < 2e-4
     for rows, _ in figures(every[2]) for r in rows[1:])'
ok 'the rate that was chosen' page ablation.html \
    '[(sum(r[-1] == "yes" for r in rows), t.count("class=\"hollow")) for rows, t in figures(every[3])] == [(2, 2)] * 2'
ok 'Wilson'"'"'s intervals' page ablation.html \
    'figures(every[4])[0][0][1] == ["z", "3", "0", "0.000", "0.561", "0", "0.000", "0.561"]'
ok 'no margins where nothing was judged' page ablation.html 'not figures("Margins of parity over updates")'
ok 'a heat map of variants on tasks' page ablation.html \
    'len(parsed(part(heat, "</figure>")).rows) == 3 and part(heat, "</figure>").count("<td class=\"n h") == 4'
ok 'names are text' page ablation.html \
    'source.count("&lt;b&gt;&amp;&quot;x") > 20 and "&lt;i&gt;&amp;&quot;t" in source and "b>&" not in source and "i>&" not in source'
ok 'a variant keeps its colour' page ablation.html \
    'all(set(re.findall(r"class=\"(?:curve thick|whisker) s(\d)", t)) == {"0", "1"} for f in every[:3] for _, t in figures(f))'
ok 'many runs are folded away' page ablation.html \
    '"<details><summary>Each of 24 runs by itself</summary>" in part("<section id=\"learning\">", "</section>")'
printf '[experiment]\nname = single\nmeasure = train\nbackends = ref32\n[model a]\nmixer = none\nwidth = 8\n[trial]\nmodel = a
task = parity\nlength = 8\nupdates = 6\nbatch = 4\n' >single.ini
"$program" single.ini >out 2>&1
ok 'a single run' exits 0 --report single.h5
ok 'has no ablation' page single.html \
    '"Ablation" not in text and "id=\"learning\"" in source and "by itself" not in text'
cat >diverged.ini <<'END'
[experiment]
name = diverged
measure = train
backends = ref32
[model a]
mixer = e74
proj = full
z_mod = row
nonlin = linear
n_state = 4
width = 8
[trial]
model = a
task = parity
length = 8
updates = 60
batch = 4
lr = 1000
clip = 0
warmup = 0
schedule = constant
seed = 1, 2
END
"$program" diverged.ini >out 2>&1
"$program" --report diverged.h5 >out 2>&1
ok 'runs that diverged are marked' page diverged.html \
    'all(t.count("class=\"cross") == 2 for f in every[:3] for _, t in figures(f)) and "2 of 2 runs diverged" in text'
cat >judged.ini <<'END'
[experiment]
name = judged
measure = train
[model a]
mixer = none
width = 8
[trial]
model = a
task = parity
length = 8
updates = 2
batch = 2
eval_rows = 2
seed = 1, 2
END
"$program" judged.ini >judged.out 2>&1
"$program" --report judged.h5 >out 2>&1
grep -q 'parity: no GPU trains' judged.out && there=0 || there=1
ok 'margins of parity where a GPU trains' page judged.html \
    "len(figures('Margins of parity over updates')) == $there"

# ---- many trials ----

printf '[experiment]\nname = many\nchecks = properties\nrepeats = 1\nsave = none\n[trial]\nop = silu
rows = 1 .. 50\ndim = 1 .. 24\n' >many.ini
"$program" many.ini >out 2>&1
ok 'a dump of 1200 trials' exits 0 --report many.h5
ok 'has a page below 2 MB' test "$(wc -c <many.html)" -lt 2000000
ok 'with all trials in a row' page many.html 'any(row[-1] == "1200" for row in rows)'
ok 'and says what it leaves out' page many.html '"are not shown here" in text'

# ---- what is refused ----

ok 'no file' refuses 'nothing.h5: No such file or directory' --report nothing.h5
ok 'a file that is no dump' refuses 'small.ini: is no HDF5 file' --report small.ini
head -c 20000 small.h5 >cut.h5
ok 'a dump that is cut off' refuses 'cut.h5: cannot be read: ' --report cut.h5
: >empty.h5
ok 'an empty file' refuses 'empty.h5: is no HDF5 file' --report empty.h5
ok 'a folder' refuses '.: Is a directory' --report .
ok 'a page that cannot be written' refuses 'nowhere/x.html: No such file' \
    --report small.h5 -o nowhere/x.html
ok 'a dump is not replaced by its page' refuses 'is there and no page of ablate' \
    --report small.h5 -o small.h5
ok 'nor another file' refuses 'is there and no page of ablate' --report small.h5 -o small.ini
ok 'another option' refuses '--report takes only -o beside it' --report small.h5 --force
ok 'a second file' refuses '--report takes one file; leave out bad.h5' --report small.h5 bad.h5
ok 'no name of a file' refuses '--report needs an argument' --report
echo "1..$n"
