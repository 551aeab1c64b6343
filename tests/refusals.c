/* Plans that are refused: the messages for wrong ini files and words, with their lines. */
#include "config.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/plans.h"

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

static void sections(void)
{
    refused("unknown section", "[trails]\n" LINEAR, "t.ini:1: unknown section [trails]\n");
    refused("no trial", "[experiment]\nseed = 1\n", "t.ini: it has no [trial]\n");
    refused("empty file", "", "t.ini: it has no [trial]\n");
    refused("no op", "\n[trial x]\nsteps = 3\n", "t.ini:2: [trial x] has no op\n");
    refused("empty section", LINEAR "[trial]\n", "t.ini:3: [trial] has no op\n");
    refused("empty sections", "[trial]\n[trial]\n",
            "t.ini:1: [trial] has no op\nt.ini:2: [trial] has no op\n");
    refused("no section", "seed = 1\nname = x\n" LINEAR,
            "t.ini:1: seed = 1 stands before any section\n");
    refused("two experiments", "[experiment]\n[experiment]\n" LINEAR,
            "t.ini:2: a second [experiment]; the first is in line 1\n");
    refused(
        "a name twice", LINEAR "[trial a]\nop = linear\n[trial b]\nop = linear\n[trial  a]\n",
        "t.ini:7: a second [trial  a]; the first is in line 3\nt.ini:7: [trial  a] has no op\n");
    refused("no ]", "[trial\nop = x\n" LINEAR, "t.ini:1: a section has no ]: [trial\n");
    refused("behind the ]", "[trial] op = linear\nfoo = x\n" LINEAR,
            "t.ini:1: something stands behind the section's ]: op = linear\n");
    refused("long section", "[trial " FIFTY "]\n" LINEAR,
            "t.ini:1: section [trial 01234567890123...] is longer than 49 characters\n");
}

static void keys(void)
{
    refused(
        "unknown key", E74 "nonlim = tanh\nfoo = 1\n",
        "t.ini:3: unknown key 'nonlim' in [trial]; did you mean 'nonlin'? (keys of e74: state "
        "proj nonlin * dim z_act fill; of every trial: op cases dtype seed input file group tensor "
        "program eval confirm adjust kernel "
        "goal goal_backward accumulate in_place)\n"
        "t.ini:4: unknown key 'foo' in [trial] (keys of e74: *)\n");
    refused("unknown key of an experiment", "[experiment]\nsede = 1\n" LINEAR,
            "t.ini:2: unknown key 'sede' in [experiment]; did you mean 'seed'? (keys: name seed "
            "backends * per_device)\n");
    refused("key of another section",
            "[experiment]\nop = e74\nstate = full\n" LINEAR "repeats = 1\n",
            "t.ini:2: unknown key 'op' in [experiment]; it belongs in [trial]\n"
            "t.ini:3: unknown key 'state' in [experiment]; it belongs in [trial]\n"
            "t.ini:6: unknown key 'repeats' in [trial]; it belongs in [experiment]\n");
    refused(
        "key of another operation", LINEAR "n_state = 5\n",
        "t.ini:3: unknown key 'n_state' in [trial]; it is no parameter of linear (keys of linear: "
        "rows dim_in dim_out bias act; of every trial: *)\n");
    refused("key twice", E74 "steps = 3\nbatch = 3\nsteps = 3\n",
            "t.ini:5: steps is listed twice in this section, first in line 3\n");
    refused("op twice", "[trial x]\nop = e74\nop = linear\n",
            "t.ini:3: op is listed twice in this section, first in line 2\n");
    refused("unknown operation", "[trial]\nop = linaer\nrow = 1\n[trial]\nop = nonesuch\n",
            "t.ini:2: op = linaer: no such operation; did you mean 'linear'?\n"
            "t.ini:3: unknown key 'row' in [trial]; did you mean 'rows'?\n"
            "t.ini:5: op = nonesuch: not one of*linear*\n");
    refused("no key", LINEAR "= 3\n", "t.ini:3: a key is missing before '= 3'\n");
    refused("no =", LINEAR "rows\n  3\n", "t.ini:3: expected key = value at: rows\n");
    refused("long key", LINEAR FIFTY " = 3\n  4\n",
            "t.ini:3: key '01234567890123456789...' is longer than 49 characters\n");
    refused("long line",
            LINEAR "; " FIFTY FIFTY FIFTY FIFTY "\nrows = " FIFTY FIFTY FIFTY FIFTY "\n 3\n",
            "t.ini:4: rows = " FIFTY FIFTY FIFTY FIFTY "*: must be 1 to 1073741824\n");
    refused("a value all the same", LINEAR "rows =\ndim_in = \"\"\n",
            "t.ini:3: rows: a value is missing\nt.ini:4: dim_in: a value is missing\n");
    refused("quotes", LINEAR "rows = \"3\ndim_in = \"3\"4\n",
            "t.ini:3: rows = \"3: it must end where its quotes do\n"
            "t.ini:4: dim_in = \"3\"4: it must end where its quotes do\n");
}

/* What a '#' leaves of a line is refused with a hint, whatever it stands behind; one that does begin a
 * comment, or is quoted, gets none. */
static void comments(void)
{
#define HINT "; a comment at the end of a line begins with ';', not with '#'\n"
    refused("# behind a number", LINEAR "rows = 3 # three\n",
            "t.ini:3: rows = 3 # three: not a whole number in decimal digits" HINT);
    refused("# behind a list", LINEAR "rows = 3, 4# four\ndim_in = 16:64 x2 # ranges\n",
            "t.ini:3: rows = 4# four: *" HINT "t.ini:4: dim_in = *" HINT);
    refused("# in the line that goes on", LINEAR "rows = 3,\n\n  4 # four\ndim_in = 0\n",
            "t.ini:3: rows = 4 # four: *" HINT "t.ini:6: dim_in = 0: must be 1 to *\n");
    refused("# behind a choice", "[trial]\nop = e74\nstate = full # all\n",
            "t.ini:3: state = full # all: not one of *" HINT);
    refused("# behind a real number, a type, a seed and an operation",
            "[trial]\nop = softmax\nscale = 1.5 # s\ndtype = fp32 # d\nseed = 1 # s\n"
            "[trial]\nop = linear # l\n",
            "t.ini:3: scale = *" HINT "t.ini:4: dtype = *" HINT "t.ini:5: seed = *" HINT
            "t.ini:7: op = linear # l: *" HINT);
    refused("# behind a file", E74 "input = text\nfile = no.txt # mine\n",
            "t.ini:4: file = no.txt # mine: *" HINT);
    refused("# behind values of an experiment",
            "[experiment]\nname = x # y\nrepeats = 3 # z\nchecks = none # w\n" LINEAR,
            "t.ini:2: name = *" HINT "t.ini:3: repeats = *" HINT "t.ini:4: checks = *" HINT);
    refused("# behind quotes", LINEAR "rows = \"3\" # three\n",
            "t.ini:3: rows = \"3\" # three: it must end where its quotes do" HINT);
    refused("# behind a key", LINEAR "rows # three = 3\nrows # three\n",
            "t.ini:3: unknown key 'rows # three' in [trial] *" HINT
            "t.ini:4: expected key = value at: rows # three" HINT);
    refused("# in a section", "[experiment # x]\n[trial # y\n" LINEAR,
            "t.ini:1: unknown section [experiment # x]" HINT
            "t.ini:2: a section has no ]: [trial # y" HINT);
    refused("# that begins a comment, or none",
            "[experment] # x\n" LINEAR "# y\nrows = 0 ; # z\n # a\n  4\ndim_in = \"0 # b\"\n",
            "t.ini:1: unknown section [experment]\nt.ini:5: rows = 0: must be 1 to 1073741824\n"
            "t.ini:8: dim_in = 0 # b: *digits\n");
#undef HINT
}

static void numbers(void)
{
    refused("other spellings of numbers",
            LINEAR "rows = 1_000, 5., +, --5, \"5\n[trial]\nop = cross_entropy\n"
                   "label_smoothing = 0x1p3, inf, nan, 1e, ., 1e400, 2 0\n",
            "t.ini:3: rows = 1_000: not a whole number in decimal digits\n"
            "t.ini:3: rows = 5.: not a whole number in decimal digits\n"
            "t.ini:3: rows = +: not a whole number in decimal digits\n"
            "t.ini:3: rows = --5: not a whole number in decimal digits\n"
            "t.ini:3: rows = \"5: not a whole number in decimal digits\n"
            "t.ini:6: label_smoothing = 0x1p3: not a decimal number\n"
            "t.ini:6: label_smoothing = inf: not a decimal number\n"
            "t.ini:6: label_smoothing = nan: not a decimal number\n"
            "t.ini:6: label_smoothing = 1e: not a decimal number\n"
            "t.ini:6: label_smoothing = .: not a decimal number\n"
            "t.ini:6: label_smoothing = 1e400: must be *\n"
            "t.ini:6: label_smoothing = 2 0: not a decimal number\n");
}

static void doubled(void)
{
    refused("values twice in a list",
            "[experiment]\nbackends = ref64, ref32, ref64\nchecks = parity, parity\n" LINEAR
            "rows = 5, 6, +5\nseed = 7, 007\nact = none, relu, none\n[trial]\nop = "
            "cross_entropy\nlabel_smoothing = 1, .5, 5e-1\n",
            "t.ini:2: backends: ref64 is listed twice in the list, as values 1 and 3\n"
            "t.ini:3: checks: parity is listed twice in the list, as values 1 and 2\n"
            "t.ini:6: rows: 5 is listed twice in the list, as values 1 and 3\n"
            "t.ini:7: seed: 7 is listed twice in the list, as values 1 and 2\n"
            "t.ini:8: act: none is listed twice in the list, as values 1 and 3\n"
            "t.ini:11: label_smoothing: 0.5 is listed twice in the list, as values 2 and 3\n");
}

static void values(void)
{
    refused("choice", E74 "state = full, fool\n",
            "t.ini:3: state = fool: not one of full diagonal lowrank blockdiag\n");
    refused("numbers", E74 "steps = 0, -1, 99999999999999999999, 1e3, 0x10, x,, 2\n",
            "t.ini:3: steps: a value is missing\n"
            "t.ini:3: steps = 0: must be 1 to 1073741824\n"
            "t.ini:3: steps = -1: must be 1 to 1073741824\n"
            "t.ini:3: steps = 99999999999999999999: must be 1 to 1073741824\n"
            "t.ini:3: steps = 1e3: not a whole number in decimal digits\n"
            "t.ini:3: steps = 0x10: not a whole number in decimal digits\n"
            "t.ini:3: steps = x: not a whole number in decimal digits\n");
    refused("a bad value once, not for each combination",
            E74 "batch = 1, 2, 3\nsteps = 0, 5\nseed = 1, 2\ndtype = fp32, fp16\n",
            "t.ini:4: steps = 0: must be 1 to 1073741824\n"
            "t.ini:6: dtype = fp16: not one of fp32 bf16\n");
    refused("the experiment's",
            "[experiment]\nname = a/b\nseed = -1\nbackends = ref64, gpu99\n"
            "checks = parity, none, all\ndirections = 65\nrepeats = 1001\nsave = some\n"
            "compress = 1.5\ndevice = cuda\n" LINEAR,
            "t.ini:2: name = a/b: may have letters, digits, '_', '-' and '.' only\n"
            "t.ini:3: seed = -1: must be 0 to 18446744073709551615\n"
            "t.ini:4: backends = gpu99: not one of those in this build: ref64 ref32 ref_bf16*\n"
            "t.ini:5: checks: nothing can stand beside none\n"
            "t.ini:5: checks = all: not one of differences parity properties power none\n"
            "t.ini:6: directions = 65: must be 1 to 64\n"
            "t.ini:7: repeats = 1001: must be 0 to 1000\n"
            "t.ini:8: save = some: not one of all outputs none final\n"
            "t.ini:9: compress = 1.5: not a whole number in decimal digits\n"
            "t.ini:10: device = cuda: not a whole number in decimal digits\n");
    refused("checks and repeats where times are measured",
            "[experiment]\nmeasure = time\nchecks = parity, properties\nrepeats = 0\n" LINEAR,
            "t.ini:3: checks: measure = time makes none but parity\n"
            "t.ini:4: repeats = 0: measure = time needs timed runs\n");
    refused("measure", "[experiment]\nmeasure = speed\n" LINEAR,
            "t.ini:2: measure = speed: not one of check time crossover train\n");
    refused("seed", LINEAR "seed = 18446744073709551616, 0x1\n",
            "t.ini:3: seed = 18446744073709551616: must be 0 to 18446744073709551615\n"
            "t.ini:3: seed = 0x1: not a whole number in decimal digits\n");
    refused("lists where none may stand",
            "[experiment]\nseed = 1, 2\nname = a, b\n[trial]\nop = linear, e74\n"
            "input = text, hdf5\nfile = a,b\n group\nkernel = a\n b\n",
            "t.ini:2: seed takes one value, not a list\n"
            "t.ini:3: name takes one value, not a list\n"
            "t.ini:5: op takes one value, not a list\n"
            "t.ini:6: input takes one value, not a list\n"
            "t.ini:7: file takes one value, not a list\n"
            "t.ini:9: kernel takes one value, not a list\n");
    refused("kernel", LINEAR "kernel = magic\n",
            "t.ini:3: kernel = magic: not one of those of linear in this build: *blas*\n");
    refused("too many trials",
            LINEAR LINEAR "rows = 1,2,3,4,5,6,7,8,9,10\n"
                          "dim_in = 1,2,3,4,5,6,7,8,9,10\ndim_out = 1,2,3,4,5,6,7,8,9,10\n"
                          "seed = 1,2,3,4,5,6,7,8,9,10\n",
            "t.ini:3: this makes 10000 trials more; an experiment has at most 9999\n");
}

static void judging_faults(void)
{
    refused("judge", "[experiment]\njudge = some\n" LINEAR,
            "t.ini:2: judge = some: not one of auto full sampled\n");
    refused("two ways to judge", "[experiment]\njudge = auto, full\n" LINEAR,
            "t.ini:2: judge*takes one value*\n");
    refused("what a sample cannot check",
            "[experiment]\njudge = sampled\nchecks = parity, differences\n" LINEAR,
            "t.ini:3: checks: differences, properties and power need all elements; judge = "
            "sampled takes parity or none\n");
    refused("properties of a sample", "[experiment]\nchecks = properties\njudge = sampled\n" LINEAR,
            "t.ini:2: checks: differences, properties and power need all elements; judge = "
            "sampled takes parity or none\n");
    refused("what a sample cannot say",
            "[experiment]\njudge = sampled\nchecks = parity, power\n" LINEAR,
            "t.ini:3: checks: differences, properties and power need all elements; judge = "
            "sampled takes parity or none\n");
    refused("power beside times", "[experiment]\nmeasure = time\nchecks = power\n" LINEAR,
            "t.ini:3: checks: measure = time makes none but parity\n");
    refused("and beside crossovers", "[experiment]\nchecks = power\nmeasure = crossover\n" LINEAR,
            "t.ini:2: checks: measure = crossover makes none but parity\n");
    refused("what cannot be sampled",
            "[experiment]\njudge = sampled\n" LINEAR "[trial]\nop = histogram\n",
            "t.ini:5: judge = sampled: histogram cannot be sampled: no result of it has a row that "
            "depends on the same row of the inputs alone\n");
}

/* Its last [trial] is in line 15, where HOW has two. */
#define MODELS(how)                                                                                \
    "[experiment]\nmeasure = train\n" how "\n"                                                     \
    "[model z]\nmixer = e74\nn_state = 16\nwidth = 32\n"                                           \
    "[task bits]\ntask = parity\nlength = 8\n"                                                     \
    "[trial]\nmodel = z\ntask = bits\n[trial]\n"
/* The other model; its keys are in line 21 and on. */
#define OTHER(keys) "model = d\ntask = bits\n[model d]\nmixer = e74\nwidth = 32\n" keys
#define MATCH "match = parameters\nreference = z"

static void match_faults(void)
{
    refused("match of checks", "[experiment]\nmatch = state\nreference = z\n" LINEAR,
            "t.ini:2: match: only measure = train has models that are made equal\n");
    refused("how it is matched",
            "[experiment]\nmeasure = train\nmatch = size\n[trial]\nmixer = none\n",
            "t.ini:3: match = size: not one of none parameters state flops\n");
    refused("several that are timed", "[experiment]\nmeasure = time\nper_device = 2\n" LINEAR,
            "t.ini:3: per_device = 2: measure = time times one trial at a time on a device\n");
    refused(
        "or grow", "[experiment]\nper_device = 64\nmeasure = crossover\n" LINEAR,
        "t.ini:2: per_device = 64: measure = crossover times one trial at a time on a device\n");
    refused("or are timed beside checks", "[experiment]\nper_device = 3\n" LINEAR,
            "t.ini:2: per_device = 3: repeats = 5 times one trial at a time on a device; set "
            "repeats = 0\n");
    refused("a key of checks", LINEAR "adjust = rows\n",
            "t.ini:3: adjust: only measure = train makes models equal\n");
    words_refused("a match of words", "train mixer=none match=flops",
                  "-t: match: words have no [model]s that could be made equal\n");
    refused("a reference and no match", MODELS("reference = z") OTHER("n_state = 16\n"),
            "t.ini:3: reference: match = parameters, state or flops compares with it\n");
    refused("no reference", MODELS("match = state\nrepeats = 0") OTHER("n_state = 16\n"),
            "t.ini:3: match = state needs reference = MODEL, which the others are made equal to\n");
    refused("a reference that is not there", MODELS("match = state\nreference = zz") OTHER(""),
            "t.ini:4: reference = zz: the plan has no such variant; it has z d\n");
    refused("nor a baseline", MODELS("match = state\nbaseline = zz") OTHER(""),
            "t.ini:4: baseline = zz: no [trial] has a variant zz; did you mean 'z'?\n");
    refused("no [model]s",
            "[experiment]\nmeasure = train\nmatch = state\nreference = z\n[trial]\nmixer = none\n",
            "t.ini:4: reference = z: the plan has no such variant; it has none\n");
    refused("a reference of two variants",
            MODELS("match = state\nreference = d") OTHER("n_state = 16, 17\n"),
            "t.ini:4: reference = d: [model d] is several variants, d_16 and d_17; name one\n");
    refused(
        "a reference on another task",
        MODELS(
            MATCH) "model = d\ntask = words\n"
                   "[task words]\ntask = word\n[model d]\nmixer = e74\nn_state = 16\nwidth = 32\n",
        "t.ini:4: reference = z: it has no trial on the task of d, words in fp32\n");
    refused("and in another type", MODELS(MATCH) "dtype = bf16\n" OTHER("n_state = 16\n"),
            "t.ini:4: reference = z: it has no trial on the task of d, bits in bf16\n");
    refused(
        "what is no key", MODELS(MATCH) OTHER("adjust = n_stats\n"),
        "t.ini:21: adjust = n_stats: it must be a key of the mixer or the model that is a whole "
        "number\n");
    refused("a key of the task", MODELS(MATCH) OTHER("adjust = length\n"),
            "t.ini:21: adjust = length: it must be*\n");
    refused("a choice", MODELS(MATCH) OTHER("adjust = state\n"),
            "t.ini:21: adjust = state: it must be*\n");
    refused("a key that follows", MODELS(MATCH) OTHER("adjust = dim\n"),
            "t.ini:21: adjust = dim: it must be*\n");
    refused("a key of several values", MODELS(MATCH) OTHER("n_state = 3, 4\nadjust = n_state\n"),
            "t.ini:22: adjust = n_state: it has several values in line 21; one can be adjusted\n");
    refused("a key that does not apply", MODELS(MATCH) OTHER("adjust = rank\n"),
            "t.ini:21: adjust = rank: only state = lowrank has a rank\n");
    refused("adjust in a [task]", MODELS(MATCH) OTHER("[task words]\nadjust = mlp\n"),
            "t.ini:21: [task words]: no [trial] names it\n");
    refused("in that of a trial",
            MODELS(MATCH) "task = words\nmodel = z\n[task words]\nadjust = mlp\n",
            "t.ini:19: adjust in [task words]: it belongs in [model]\n");
    refused("nothing to adjust", MODELS(MATCH) OTHER("n_state = 12\n"),
            "t.ini:18: match = parameters: d has 1600, and z 2112, more than 1 % off: adjust = KEY "
            "would say what may change\n");
    refused("all values are more", MODELS(MATCH) OTHER("n_state = 4\nblocks = 12\nadjust = mlp\n"),
            "t.ini:23: match = parameters: no mlp of d comes within 1 % of z's 2112; 0 has 6560\n");
    refused(
        "none between two", MODELS(MATCH) OTHER("n_state = 5\nadjust = mlp\n"),
        "t.ini:22: match = parameters: no mlp of d comes within 1 % of z's 2112; 14 has 2080, 15 "
        "has 2176\n");
    refused("a key on which it does not depend",
            MODELS("match = state\nreference = z") OTHER("n_state = 5\nadjust = mlp\n"),
            "t.ini:22: match = state: no mlp of d comes within 1 % of z's 1024; 0 has 100\n");
}

static void every_operation_faults(void)
{
    refused("a key that no operation has", "[trial]\nop = all\nrowz = 3\nkernel = plain\n",
            "t.ini:3: unknown key 'rowz' in [trial]; did you mean 'rows'?\n"
            "t.ini:4: kernel: op = all takes none; name one operation\n");
    refused("a value that one operation cannot have", "[trial]\nop = all\nkind = inclusive\n",
            "t.ini:3: reduce: kind = inclusive: not one of sum max mean norm2\n");
    refused("sizes that one operation cannot have", "[trial]\nop = all\ndim = 7\n",
            "t.ini:1: rope: dim = 7: a head must be pairs, an even number *\n");
    refused("a file for all", "[trial]\nop = all\ninput = text\nfile = a.txt\n",
            "t.ini:3: input = text: op = all takes normal or nonzero; name one operation\n");
    refused("a list of operations", "[trial]\nop = all, linear\n",
            "t.ini:2: op takes one value, not a list\n");
    refused("cases and a parameter", LINEAR "cases = contract\nrows = 3\n",
            "t.ini:4: rows: cases = contract sets every parameter\n");
    refused("cases of no kind", LINEAR "cases = large\n",
            "t.ini:3: cases = large: not one of none contract shapes\n");
    refused("shapes of an operation without", "[trial]\nop = diag_delta\ncases = shapes\n",
            "t.ini:3: cases = shapes: diag_delta has none\n");
    words_refused("nearly all", "al", "-t: op = al: no such operation; did you mean 'all'?\n");
}

static void combinations(void)
{
    refused("blocks that do not divide",
            E74 "state = blockdiag\nblock_size = 8, 5, 7\ndtype = fp32, bf16\nseed = 1, 2\n",
            "t.ini:1: e74: block_size = 5 does not divide n_state = 64 (state=blockdiag * "
            "block_size=5 *)\n"
            "t.ini:1: e74: block_size = 7 does not divide n_state = 64 (state=blockdiag * "
            "block_size=7 *)\n");
    refused("many of them", LINEAR E74 "state = blockdiag\nblock_size = 5, 6, 7, 9, 10, 11\n",
            "t.ini:3: e74: block_size = 5 *\nt.ini:3: e74: block_size = 6 *\n"
            "t.ini:3: e74: block_size = 7 *\nt.ini:3: and 3 more\n");
    refused(
        "z_mod without z", E74 "proj = no_z, tied_kq\nz_mod = row, full\n",
        "t.ini:4: z_mod: only proj = full has a z, but this section has proj = no_z, tied_kq\n");
    refused("z_mod and no proj", E74 "z_mod = row\n",
            "t.ini:3: z_mod: only proj = full has a z, but proj is no_z unless set\n");
    refused("rank without lowrank", E74 "rank = 4, 5\nstate = diagonal\n",
            "t.ini:3: rank: only state = lowrank has a rank, but this section has state = "
            "diagonal\n");
    refused("overflowing sizes",
            LINEAR "rows = 1073741824\ndim_in = 1073741824\ndim_out = 1073741824\n",
            "t.ini:1: linear: x has more elements than a 64-bit size can count (rows=1073741824 "
            "dim_in=1073741824 dim_out=1073741824 bias=no act=none)\n");
    refused("memory", E74 "steps = 1000000\nbatch = 1000000\nseed = 1, 2\ndtype = fp32, bf16\n",
            "t.ini:1: e74 needs *iB of memory, *iB are available (* steps=1000000 batch=1000000 * "
            "dtype=fp32)\n"
            "t.ini:1: e74 needs *iB of memory, *iB are available (* steps=1000000 batch=1000000 * "
            "dtype=bf16)\n");
}

static void input_faults(void)
{
    refused("input without its file", E74 "input = text\n" E74 "input = hdf5\n",
            "t.ini:3: input = text needs a file\nt.ini:6: input = hdf5 needs a file\n");
    refused("file without its input", E74 "file = a.txt\n" E74 "input = normal\ngroup = /\n",
            "t.ini:3: file: only input = text, hdf5 and gguf have one\n"
            "t.ini:7: group: only input = hdf5 has one\n");
    refused("gguf without a tensor, a tensor without gguf",
            E74 "input = gguf\nfile = t.ini\n" E74 "tensor = a\n",
            "t.ini:3: input = gguf needs a tensor; run-ablation --list FILE names them\n"
            "t.ini:7: tensor: only input = gguf has one\n");
    refused("no GGUF", "[trial]\nop = softmax\ninput = gguf\nfile = t.ini\ntensor = a\n",
            "t.ini:5: t.ini: begins with \"[tri\": not GGUF\n");
    refused("files that cannot be read",
            E74 "input = text\nfile = none.txt\n" E74 "input = \"text\"\nfile = sub\n",
            "t.ini:4: file = none.txt: No such file or directory\n"
            "t.ini:8: file = sub: Is a directory\n");
    refused("files that are no regular ones",
            E74 "input = text\nfile = pipe\n" E74 "input = hdf5\nfile = /dev/zero\n" E74
                "input = text\nfile = -\n",
            "t.ini:4: file = pipe: is a pipe; only a regular file can be read\n"
            "t.ini:8: file = /dev/zero: is a device; only a regular file can be read\n"
            "t.ini:12: file = -: standard input cannot be read; name a regular file\n");
    refused("text for an operation that takes none", LINEAR "input = text\nfile = a.txt\n",
            "t.ini:3: input = text: linear has no tensor that can hold a text\n");
    refused("input that is none, whose file is not looked for", E74 "input = tekst\nfile = b\n",
            "t.ini:3: input = tekst: not one of normal nonzero text hdf5 gguf\n");
}

static void unreadable(void)
{
    struct experiment x;
    struct messages messages = read_plan("none.ini", NULL, &x);
    expect(&messages, "none.ini: cannot be read: No such file or directory\n", "no such file");
    messages = read_plan("sub", NULL, &x);
    expect(&messages, "sub: cannot be read: Is a directory\n", "a folder");
    messages = read_plan("pipe", NULL, &x);
    expect(&messages, "pipe: cannot be read: is a pipe; only a regular file can be read\n",
           "a pipe");
    messages = read_plan("/dev/null", NULL, &x);
    expect(&messages, "/dev/null: cannot be read: is a device; *\n", "a device");
    messages = read_plan("-", NULL, &x);
    expect(&messages, "-: cannot be read: standard input cannot be read; name a regular file\n",
           "standard input");
    put("t.ini", "[trial]\nop = linear\nro\0ws = 3\nfoo\n", 34);
    messages = read_plan("t.ini", NULL, &x);
    expect(&messages, "t.ini:3: a byte of value 0: this is not a text file\n", "a byte of value 0");
    put("closed.ini", LINEAR, strlen(LINEAR));
    chmod("closed.ini", 0);
    chmod(".", 0755);
    uid_t user = geteuid();
    int nobody = user || seteuid(65534) == 0; /* root reads everything */
    messages = read_plan("closed.ini", NULL, &x);
    if (!nobody || seteuid(user))
        ok(0, "root could not become nobody for a moment");
    expect(&messages, "closed.ini: cannot be read: Permission denied\n",
           "a file without permission");
}

static void together(void)
{
    refused("all at once, in the order of the lines",
            "[experment]\n[trial]\nop = e74\nstate = blockdiag\nblock_size = 5\n"
            "[trial]\nsteps = 0\nop = e74\nz_mod = low\nrow\n[experiment]\nrepeats = x\n"
            "[trial]\n\x1b = 3\n",
            "t.ini:1: unknown section [experment]\n"
            "t.ini:2: e74: block_size = 5 does not divide *\n"
            "t.ini:7: steps = 0: must be 1 to 1073741824\n"
            "t.ini:9: z_mod = low: not one of column row full\n"
            "t.ini:10: expected key = value at: row\n"
            "t.ini:12: repeats = x: not a whole number in decimal digits\n"
            "t.ini:13: [trial] has no op\n"
            "t.ini:14: unknown key '\\x1b' in [trial]\n");
}

static void word_faults(void)
{
    words_refused("no words", "", "-t: no operation is named\n");
    words_refused("unknown operation", "e75 foo=1",
                  "-t: op = e75: no such operation; did you mean 'e74'?\n-t: unknown key 'foo'\n");
    words_refused("wrong words", "e74 nonlim=tanh x steps=1 =4 reprats=3 steps=2 seed=a",
                  "-t: unknown key 'nonlim'; did you mean 'nonlin'? (keys of e74: *)\n"
                  "-t: expected key=value at: x\n"
                  "-t: expected key=value at: =4\n"
                  "-t: unknown key 'reprats'; did you mean 'repeats'? (keys of e74: *)\n"
                  "-t: steps is listed twice, as words 4 and 7\n"
                  "-t: seed = a: not a whole number in decimal digits\n");
    words_refused("a value twice in a list", "linear rows=3,4,03",
                  "-t: rows: 3 is listed twice in the list, as values 1 and 3\n");
    words_refused("z_mod without z", "e74 z_mod=row proj=no_z",
                  "-t: z_mod: only proj = full has a z, but this line has proj = no_z\n");
    words_refused("attention given with a preset", "dual_memory preset=e23 attention=entmax15",
                  "-t: attention: only preset = parts leaves it open, but this line has preset = "
                  "e23\n");
    words_refused("query and gate with the default preset", "dual_memory write_query=v gate=sum",
                  "-t: write_query: only preset = parts leaves it open, but preset is e23 *\n"
                  "-t: gate: only preset = parts leaves it open, but preset is e23 *\n");
    words_refused("a clamp without its gate", "dual_memory preset=parts gate=sum clamp=5",
                  "-t: clamp: only a scaled gate (e29c) is clamped, but *\n");
    words_refused("open quotes", "e74 input=hdf5 file=\"a b.txt group=/",
                  "-t: file = \"a b.txt group=/: it must end where its quotes do\n");
    words_refused("a line end in a name", "e74 input=hdf5 file=\"a\nb\"",
                  "-t: file: a control character (10) stands in it\n");
}

int main(void)
{
    enter();
    sections();
    keys();
    comments();
    judging_faults();
    values();
    numbers();
    doubled();
    combinations();
    match_faults();
    every_operation_faults();
    input_faults();
    unreadable();
    together();
    word_faults();
    leave();
    return done();
}
