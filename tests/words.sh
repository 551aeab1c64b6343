#!/bin/sh
# The words that this project does not use, because its readers look for another: the term of
# NVIDIA's manuals, of CUTLASS or of the literature.  TAP on stdout, one test per row of the table;
# a row that is broken prints where.  words.sh [FOLDER]: in a source tree other than srcdir.
#
# A row is WORD, WORD... | TERM TO USE | text, code or name | FOLDER OR FILE...
#
# A word is found in either case, with an s, and as a part of a name (foo_word); a blank in it is
# a blank, a hyphen or an underscore.  One with a capital letter is found only as it is written.
# "text" searches whole lines.  "code" searches C, CUDA and Python without comments and strings,
# because the word has an ordinary meaning in English; "name" finds there only the word by itself,
# because it has an ordinary meaning in names as well (ALONG_K).  "all" is every file that is
# searched; -FILE is exempt.
srcdir=${srcdir:-.}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/words.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

cat >"$tmp/table" <<'END'
inbox                   | mbarrier                       | text | all
turn                    | phase                          | code | all
parcel                  | tagged value, message          | text | all
letter                  | message                        | text | gpu/
post, posted            | st.async                       | code | gpu/
ask, asks for           | prefetch                       | code | gpu/
stand                   | coordinates                    | code | gpu/
most, least             | max, min                       | name | gpu/
announce, announced     | store-release, signal          | text | all
heard                   | load-acquire                   | text | all
tell, told              | store-release, signal          | text | gpu/
tell, told              | print, report, message         | code | all
copy engine             | TMA                            | text | all
crew                    | warps, warp role               | text | all
carrier                 | warp role                      | text | all
helper                  | producer warp                  | text | gpu/ doc/
payer                   | warp role                      | text | all
walk, walker            | scan over the steps            | text | gpu/ doc/
meal                    | operands                       | text | all
course                  | stage                          | code | all
tray                    | stage                          | text | all
desk                    | coordinates                    | text | all
seat                    | coordinates                    | text | all
leg                     | segment                        | text | all
tour                    | loop, pipeline                 | text | all
under way               | in flight                      | text | all
apart                   | stride, leading dimension      | text | gpu/
room                    | workspace, capacity, available | code | all
along                   | dot                            | name | gpu/ ref/
anew                    | opaque to the optimiser        | text | gpu/
take left               | load_fragment                  | text | all
made good               | split into high and low bf16   | text | gpu/ doc/
reckon, reckoned        | compute                        | text | all
multiprocessor          | SM                             | text | gpu/ common/ ref/ doc/ README.md -gpu/machine.cu
second level            | L2                             | text | all
bend, unbend            | nonlinearity, its gradient     | text | ref/ gpu/ common/ops/ tests/ experiments/
look, think, remember   | read, update, write            | code | ref/
lively                  | nonzero state                  | text | all
nudge, nudged           | perturb                        | text | all
foretold                | predicted                      | text | all
caution                 | warning                        | text | common/ gpu/ ref/ experiments/ tests/ -common/page/dump.c
give registers          | setmaxnreg                     | text | all
take registers          | setmaxnreg                     | text | all
stretch                 | segment, run, interval         | text | gpu/ ref/ common/
piece                   | chunk, part                    | text | gpu/ ref/
portion                 | chunk                          | text | gpu/ ref/ common/ tests/
UNROLL(                 | #pragma unroll                 | text | gpu/
END

# The files that are written by hand, in a checkout, a tarball, or the folder of planted words.
sources() {
    find common data doc examples experiments gpu man ref tests -name '.*' -prune -o -type f \
        \( -name '*.[ch1]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \
        -o -name '*.ini' -o -name '*.list' -o -name '*.md' -o -name '*.py' -o -name '*.sed' \
        -o -name '*.awk' -o -name '*.sh' \) ! -path tests/words.sh ! -path doc/glossary.md -print
    ls README.md CONTRIBUTING.md NEWS Makefile.am configure.ac ablate.pc.in autogen.sh \
        install-deps .ci/affected .ci/run build-aux/compare_sass.py 2>/dev/null
}

cat >"$tmp/find.awk" <<'END'
# The table, then the sources.
function trimmed(s) { gsub(/^ +| +$/, "", s); return s }
function pattern(word, alone,    i, c, p) {
    for (i = 1; i <= length(word); i++) {
        c = substr(word, i, 1)
        p = p (c == " " ? "[ _-]" : c ~ /[a-zA-Z]/ ? c : "[" c "]")
    }
    c = alone ? "[^a-zA-Z0-9_]" : "[^a-zA-Z]"
    return "(^|" c ")" p (word ~ /[a-z]$/ ? "s?(" c "|$)" : "")
}
FNR == NR {
    split($0, field, "|")
    words[++rows] = trimmed(field[1]); term[rows] = trimmed(field[2])
    kind[rows] = trimmed(field[3]); where[rows] = trimmed(field[4])
    n = split(words[rows], one, ", ")
    for (i = 1; i <= n; i++) {
        p = pattern(one[i], kind[rows] == "name")
        form[rows] = form[rows] (i > 1 ? "|" : "") p
        any = any (any == "" ? "" : "|") tolower(p)
    }
    as_is[rows] = words[rows] ~ /[A-Z]/
    next
}

# Is the file among those of the row?
function within(file, row,    n, i, name, found) {
    n = split(where[row], name, " ")
    for (i = 1; i <= n; i++) {
        if (name[i] == "-" file)
            return 0
        found = found || name[i] == "all" || index(file, name[i]) == 1
    }
    return found
}

# The line without comments and strings, which it may begin or end.
function code(line,    out, what, at) {
    out = ""
    for (;;) {
        if (inside != "") {
            at = index(line, inside)
            if (!at)
                return out
            line = substr(line, at + length(inside)); inside = ""
        }
        if (python ? !match(line, /"""|"([^"\\]|\\.)*"|'([^'\\]|\\.)*'|#.*/) \
                   : !match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)*'|\/\/.*|\/\*/))
            return out line
        what = substr(line, RSTART, RLENGTH); out = out substr(line, 1, RSTART - 1) " "
        line = substr(line, RSTART + RLENGTH)
        inside = what == "\"\"\"" ? what : what == "/*" ? "*/" : ""
    }
}

FNR == 1 {
    python = FILENAME ~ /\.py$/; has_code = python || FILENAME ~ /\.([ch]|cc|cu|cuh|def)$/
    inside = ""
    for (r = 1; r <= rows; r++)
        here[r] = within(FILENAME, r)
}
{
    bare = has_code ? code($0) : ""
    if (tolower($0) !~ any)
        next
    for (r = 1; r <= rows; r++) {
        line = kind[r] == "text" ? $0 : bare
        if (here[r] && (as_is[r] ? line : tolower(line)) ~ form[r])
            found[r] = found[r] "# " FILENAME ":" FNR ": " trimmed($0) "\n"
    }
}
END {
    for (r = 1; r <= rows; r++)
        printf "%sok %d - \"%s\": %s\n%s", found[r] == "" ? "" : "not ", r, words[r],
            term[r], found[r]
}
END

# seek FOLDER: a line of TAP for each row, and where it is broken.
seek() (
    cd "$1" || return
    sources >"$tmp/sources"
    xargs awk -f "$tmp/find.awk" "$tmp/table" <"$tmp/sources"
)

# Each word in the first folder of its row: on a line of code, where it is to be found, and on three
# lines as a comment or a string, where only "text" finds it.
for folder in common/ops data doc examples experiments gpu man ref tests; do
    mkdir -p "$tmp/bad/$folder" || exit 1
done
awk -F' *[|] *' -v to="$tmp/bad" '{
    folder = $4; sub(/ .*/, "", folder); sub(/^all$/, "common/", folder)
    file = to "/" folder "row" NR ".h"; n = split($1, word, ", ")
    for (i = 1; i <= n; i++) {
        name = word[i]; gsub(/ /, "_", name)
        printf "int %s%s;\nchar b; /* a\n", $3 == "name" ? "" : "a_", name >file
        printf " %s */ // %s\n", word[i], word[i] >file
        printf "char *c = \"%s \\\" %s\"; /* d */\n", word[i], word[i] >file
    }
    close(file)
    want = $3 == "text" ? 3 * n : n
    print NR, folder "row" NR ".h", want
}' "$tmp/table" >"$tmp/planted"

rows=$(wc -l <"$tmp/table")
seek "${1:-$srcdir}" >"$tmp/result"
cat "$tmp/result"
if ! grep -q '^common/' "$tmp/sources" ||
    [ $(grep -c 'ok [0-9]* - ' "$tmp/result") != $((rows)) ]; then
    echo "Bail out! the files of ${1:-$srcdir} could not be read"
    exit 1
fi
seek "$tmp/bad" >"$tmp/result"
missed=$(awk 'FILENAME != ARGV[2] { if (/^not ok/) row = $3; else if (/^ok/) row = 0
                                     else if (index($2, "/row" row ".h:")) seen[row]++
                                     next }
    seen[$1] + 0 != $3 { print "# row " $1 ": found in " seen[$1] + 0 " of " $3 " lines of " $2 }' \
    "$tmp/result" "$tmp/planted")
[ -z "$missed" ] && echo "ok $((rows + 1)) - each word is found where it is planted" ||
    printf 'not ok %d - each word is found where it is planted\n%s\n' $((rows + 1)) "$missed"
echo "1..$((rows + 1))"
