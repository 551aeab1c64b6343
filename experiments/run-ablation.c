/* run-ablation: run the experiment that an ini file describes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/store/read_ablation.h"
#include "common/base/err.h"
#include "common/base/number.h"
#include "common/base/progress.h"
#include "common/plan/section.h"
#include "common/report/baseline.h"
#include "common/report/report.h"
#include "common/run/trial.h"
#include "common/store/header.h"
#include "common/store/predict.h"
#include "experiments/begin.h"
#include "experiments/decode.h"
#include "experiments/fits.h"
#include "experiments/inputs.h"
#include "experiments/judge.h"
#include "experiments/list.h"
#include "experiments/page.h"
#include "experiments/random.h"
#include "experiments/shown.h"
#include "experiments/dealt.h"
#include "experiments/trials.h"
#include "experiments/stop.h"
#include "experiments/worker.h"
#include "experiments/summary.h"
#include "experiments/unfinished.h"

enum {
    GOOD = 0,
    CHECK_FAILED = 1,
    BAD_INPUT = 2,
    BACKEND_MISSING = 3,
    NOT_RUN = 4,
    OUT_OF_TIME = 5,
    INTERRUPTED = 130
};

static const char usage[] =
    "usage: run-ablation [OPTION]... FILE.ini\n"
    "       run-ablation [OPTION]... -t 'OP KEY=VALUE...'\n"
    "       run-ablation --random N [--from K] [--seed S] [--op OP] [--checks LIST]\n"
    "                    [--judge sampled]\n"
    "       run-ablation --inputs 'OP KEY=VALUE...' -o FILE.h5\n"
    "       run-ablation judge FILE.h5 [--as NAME] [--partial NAMES] [--tsv] [--verbose]\n"
    "       run-ablation --report FILE.h5 [-o FILE.html]\n"
    "       run-ablation --summary FILE.h5 [--by KEY,KEY...] [--csv]\n"
    "       run-ablation --decode PARAMETERS BITS GB/S\n"
    "\n"
    "Run every trial that FILE.ini describes on every backend that is there,\n"
    "judge the gradients by differences and the GPU by the CPU oracle, and save\n"
    "every tensor to an HDF5 file.\n"
    "\n"
    "  -t WORDS         the words of one trial (or lists and ranges: several) instead of a\n"
    "                   file\n"
    "  -n, --plan       print the plan, one trial per line, and run nothing\n"
    "  -o FILE          write to FILE instead of the experiment's output\n"
    "      --until TIME begin nothing that would not end in that time, as 55m, 90s, 1.5h; exit\n"
    "                   status 5 where trials are left, and --resume goes on\n"
    "      --resume     go on with a file that an interrupted run left, and with runs of\n"
    "                   training in FILE.state; --resume=anyway: though these were begun by\n"
    "                   another build, on another machine, or with another line\n"
    "      --force      do not keep a dump of another plan, and begin again where an\n"
    "                   interrupted run left finished trials\n"
    "      --baseline FILE      compare times with those in FILE, of an earlier run on\n"
    "                           the same device; slower ones fail\n"
    "      --threshold PERCENT  ... if by more than this, and than both runs' noise [5]\n"
    "      --goals HOW  fail: a goal that is missed fails; report: it is only reported [fail]\n"
    "      --verbose    below each trial's rows: the checks that were made, the smallest errors\n"
    "                   that they would have refused, and which mistakes would pass\n"
    "      --tsv        one tab-separated record per line instead of the table\n"
    "      --random N   run N cases drawn from the contracts, on every kernel; print the\n"
    "                   line of each that fails, and of a smaller one\n"
    "      --from K     ... from case K of them on, counted from 0 [0]\n"
    "      --seed S     ... other ones [1]\n"
    "      --op OP      ... of this operation alone\n"
    "      --checks LIST    ... of differences,parity,properties these alone\n"
    "      --judge HOW      ... sampled: large ones, parity of a sample alone [full]\n"
    "      --inputs WHAT    write the inputs, and the gradients of the outputs, of these words or\n"
    "                       of FILE.ini, for another program; nothing runs\n"
    "      judge FILE.h5    judge what other programs wrote beside these inputs, each into its\n"
    "                       groups /trial/NNNN/NAME; the verdicts go into the file\n"
    "      --as NAME    ... of this program alone\n"
    "      --partial NAMES  ... these results, as d_x,lse, may be absent, or not be judged in any\n"
    "                       trial; gradients: all of them; trials: all of a trial's; unchecked:\n"
    "                       a dump without its hashes; anything else of these is exit status 1\n"
    "      --report FILE.h5     write one page of HTML on what is in a dump, FILE.html or as -o\n"
    "                       says: plan, verdicts, times, roofline, ladders; nothing runs\n"
    "      --summary FILE.h5    compare the settings in a dump: mean and standard deviation of\n"
    "                       times, errors and error / bound over seeds, best first; nothing runs\n"
    "      --by KEYS    ... a row for each value of these settings, such as state,nonlin, over\n"
    "                   all others [all that vary but seed]\n"
    "      --csv        ... as CSV; of training the table that --by names: runs, cells, tests,\n"
    "                   rates, pairs or sizes [runs]\n"
    "      --decode PARAMETERS BITS GB/S\n"
    "                   the time in which so many weights of so many bits are read: a token's\n"
    "      --list       the operations, one per line, and the keys of an ini file\n"
    "      --list OP    the operation's parameters, tensors, cost and kernels\n"
    "      --list program=FILE\n"
    "                   the same of a program of calls: its sizes, inputs, parameters, outputs\n"
    "      --list FILE.gguf\n"
    "                   the tensors of a model file: type, shape, bytes\n"
    "  -h, --help       this text\n"
    "      --version    version and what it was built with\n"
    "\n"
    "Exit status: 0 good, 1 a check failed or a goal was missed, 2 bad input, 3 a required\n"
    "backend is missing, 4 no check failed but a trial could not be run, 130 interrupted.\n"
    "\n"
    "man run-ablation describes options and keys; doc/glossary.md of the source explains\n"
    "the terms, such as oracle, yardstick and hand-over.\n";

struct options {
    const char *words, *file, *output, *baseline, *threshold, *goals, *until;
    struct until time; /* as `until` says */
    struct random_words random;
    const char *inputs, *report, *decode, *decode_bits, *decode_rate;
    struct judge_words judge;
    struct summary_words summary;
    enum checkpoint_use resume;
    int plan, force, tsv, verbose, list, help, version;
    int given; /* how many options there are */
};

/* The options by which the library's advice can be followed. */
static void print_advice(FILE *to)
{
    static const struct {
        int advice;
        const char *text;
    } options[] = {{ADVICE_RESUME, "go on with --resume"},
                   {ADVICE_ANYWAY, "take it with --resume=anyway"},
                   {ADVICE_AGAIN, "begin again with --force"},
                   {ADVICE_REPLACE, "replace it with --force"},
                   {ADVICE_MOVE, "move it away"},
                   {ADVICE_ELSEWHERE, "write elsewhere with -o"}};
    const char *between = "; ";

    for (size_t i = 0; i < COUNT(options); i++)
        if (err_advice() & options[i].advice) {
            fprintf(to, "%s%s", between, options[i].text);
            between = ", or ";
        }
}

static int complain(int status)
{
    progress_clear();
    fprintf(stderr, "run-ablation: %s", err_text());
    print_advice(stderr);
    fputc('\n', stderr);
    return status;
}

/* The device and the backends that the file names must be there. */
static int missing_backend(const struct experiment *x)
{
    if (experiment_device(x))
        return -1;
    for (int i = 0; i < x->n_backends; i++) {
        const char *why = backend_unavailable(x->contexts, x->backend[i]);
        if (why)
            return err_set("backend %s is required and missing: %s", x->backend[i]->name, why);
    }
    return 0;
}

/* What options say of the plan: what a missed goal is, and of --verbose what would pass; nonzero after err_set(). */
static int take_options(struct experiment *x, const struct options *options)
{
    const char *goals = options->goals;

    if (goals && x->measure != MEASURE_TIME)
        return err_set("--goals %s: only measure = time judges goals", goals);
    x->goals_reported = goals && strcmp(goals, "report") == 0;
    if (options->verbose && x->measure == MEASURE_CHECK && x->checks & CHECK_PARITY)
        x->checks |= CHECK_POWER;
    return 0;
}

/* Measure the ceilings, if times are compared with them. */
static void find_ceilings(struct experiment *x)
{
    static struct ceilings ceilings;

    if (x->measure != MEASURE_TIME)
        return;
    x->no_ceilings = ceilings_measure(x->contexts, &ceilings);
    x->ceilings = x->no_ceilings ? NULL : &ceilings;
}

/* *b becomes the baseline that times are compared with; NULL: none is wanted.  Nonzero after
 * err_set(). */
static int open_baseline(const struct experiment *x, const struct options *options,
                         struct baseline **b)
{
    static const char initial[] = "5";
    const char *text = options->threshold ? options->threshold : initial;
    char device[2048];
    double percent;

    *b = NULL;
    if (options->threshold && !options->baseline)
        return err_set("--threshold needs --baseline");
    if (number_real(text, 0, 1e9, &percent))
        return err_at("--threshold %s", text);
    if (!options->baseline)
        return 0;
    if (!x->repeats)
        return err_set("repeats = 0: there are no times to compare with %s", options->baseline);
    header_device(x, device, sizeof device);
    *b = baseline_open(options->baseline, percent / 100, device);
    return *b ? 0 : -1;
}

/* Trials that an earlier run left may be another device's. */
static int check_resumed(const struct baseline *b, struct store *store)
{
    char *device = store_device(store);
    int e = device ? baseline_resume(b, device) : -1;
    free(device);
    return e;
}

/* An error in the input or the output counts more than a failed check, and this more than a trial
 * that could not be run. */
static int exit_status(int bad, int failed, int errors, int left)
{
    if (stop)
        return INTERRUPTED;
    return bad ? BAD_INPUT : failed ? CHECK_FAILED : errors ? NOT_RUN : left ? OUT_OF_TIME : GOOD;
}

/* What the runs say of each other: printed, and in the file, once it is complete. */
static int sum_up(const struct experiment *x, struct store *store, struct report *report,
                  int complete)
{
    struct stored_ablation a;
    int e = stored_ablation_read(store_file(store), &a);

    if (!e && x->file)
        report_ablation(report, &a);
    if (!e && complete)
        e = store_write_ablation(store, &a.ablation);
    stored_ablation_free(&a);
    return e;
}

static int report_flags(const struct options *options)
{
    return (options->tsv ? REPORT_TSV : 0) | (options->verbose ? REPORT_VERBOSE : 0);
}

static int run_stored(struct experiment *x, const struct options *options, struct baseline *b,
                      struct store *store, struct processes *processes)
{
    struct trials trials = {.x = x,
                            .store = store,
                            .b = b,
                            .stop = &stop,
                            .processes = processes,
                            .until = options->time,
                            .report_how = report_flags(options)};
    int resumed = 0, failed;
    struct store_counts counts;

    for (int i = 0; i < x->n; i++)
        resumed += store_has(store, i, &counts);
    struct report *report = report_new(x, stdout, report_flags(options));
    if (!report || (b && resumed && check_resumed(b, store))) {
        store_close(store, 0);
        report_free(report);
        return complain(BAD_INPUT);
    }
    report_head(report, x->output, store, resumed, b);
    char part[sizeof x->output + 128];
    shown_begin(x, &stop);
    trials.report = report;
    int e = trials_run(&trials);
    shown_end();
    int complete = !e && !stop && !trials.errors && !trials.until.left;
    if (!e && x->measure == MEASURE_TRAIN)
        e = sum_up(x, store, report, complete);
    complete = complete && !e;
    snprintf(part, sizeof part, "%s", store_name(store));
    if (e)
        complain(BAD_INPUT);
    if (store_close(store, complete) && !e)
        e = complain(BAD_INPUT);
    failed = report_end(report, complete && !e ? x->output : part, stop || trials.until.left);
    report_free(report);
    return exit_status(e || trials.bad, failed, trials.errors, trials.until.left);
}

/* Can the plan go on with what is there?  Nonzero, when that has been said. */
static int check_started(const struct experiment *x, const struct options *options,
                         struct store *store)
{
    if ((options->resume && predict_fits(x, store)) || unfinished_refused(x, store))
        return complain(BAD_INPUT);
    return options->resume && wrong_inputs(x, store);
}

static char **words_of_program; /* argv */

/* What a worker's trials need besides its device. */
static int begin_worker(struct experiment *x, void *data)
{
    const struct options *options = data;
    static struct states states;

    if (missing_backend(x) || unfinished_begin(x, &states, options->resume, 1))
        return -1;
    find_ceilings(x);
    return 0;
}

static int work(struct experiment *x, struct options *options, struct leader *leader)
{
    if (take_options(x, options))
        return BAD_INPUT;
    stop_on_signals();
    return worker_run(x, leader, begin_worker, options, &stop);
}

static int run_by(struct experiment *x, const struct options *options, struct processes *processes)
{
    struct states states;
    struct baseline *b;
    struct store *store = NULL;
    int how =
        unfinished_store(options->resume) | (options->force ? STORE_REPLACE | STORE_DISCARD : 0);

    if (take_options(x, options))
        return complain(BAD_INPUT);
    if (missing_backend(x))
        return complain(BACKEND_MISSING);
    if (store_may_write(x, how) || unfinished_begin(x, &states, options->resume, options->force))
        return complain(BAD_INPUT);
    if (!options->resume && wrong_inputs(x, NULL))
        return BAD_INPUT;
    if (!options->resume && predict_fits(x, NULL))
        return complain(BAD_INPUT);
    find_ceilings(x);
    if (!open_baseline(x, options, &b)) {
        stop_on_signals(); /* from here on there is something to be left whole */
        store = store_open(x, how);
    }
    if (store && check_started(x, options, store)) {
        store_abandon(store);
        baseline_free(b);
        return BAD_INPUT;
    }
    int status = store ? run_stored(x, options, b, store, processes) : complain(BAD_INPUT);
    baseline_free(b);
    return status;
}

/* In this process, or dealt out to others: to the ranks that there are, or the devices that x names. */
static int run(struct experiment *x, const struct options *options, const struct ranks *ranks)
{
    const int n = ranks->size > 1 ? 1 : dealt_workers(x);
    struct processes *processes = NULL;

    if (ranks->size > 1 && dealt_each(x) > 1) {
        err_set("per_device = %d: mpirun and srun start a process for each trial that is to run at "
                "once; "
                "leave it out and start more",
                x->per_device);
        return complain(BAD_INPUT);
    }
    if (n < 0)
        return complain(BACKEND_MISSING);
    fits_count(x, n, ranks);
    if (fits_memory(x))
        return complain(BAD_INPUT);
    if ((n > 1 || ranks->size > 1) && !(processes = processes_start(n, ranks, words_of_program)))
        return complain(NOT_RUN);
    const int status = run_by(x, options, processes);
    processes_end(processes);
    return status;
}

/* A plan may be made where its devices are not. */
static void show_plan(struct experiment *x, const struct ranks *ranks)
{
    report_plan(x, stdout, stderr);
    fits_count(x, ranks->size > 1 ? 1 : dealt_planned(x), ranks);
    fits_print(x, stderr);
}

/* The error for the option that getopt_long() stopped at, by its return value c. */
static int wrong_option(int c, char **argv)
{
    const char *word = argv[optind - 1];

    if (c == ':')
        return err_set("%s needs an argument", word);
    if (optopt > 0 && optopt < 256)
        return err_set("there is no option -%c", optopt);
    if (optopt)
        return err_set("%.*s takes no argument", (int)strcspn(word, "="), word);
    return err_set("there is no option %s, or more than one that begins so", word);
}

static int check_random(const struct options *o)
{
    const struct random_words *r = &o->random;

    if (!r->n && (r->from || r->seed || r->op || r->checks || r->judge))
        return err_set("--from, --seed, --op, --checks and --judge need --random");
    if (r->n && (o->words || o->file))
        return err_set("--random draws its own cases; it takes no file and no -t WORDS");
    if (r->n && (o->plan || o->resume || o->force || o->tsv || o->verbose || o->output ||
                 o->baseline || o->threshold || o->goals || o->until))
        return err_set("--random takes only --from, --seed, --op, --checks and --judge beside it");
    return 0;
}

/* The options that run nothing are alone, so that no word is ignored.  Only --list takes one, an
 * operation or a file. */
static int check_alone(const struct options *o)
{
    const char *name = o->help ? "--help" : o->version ? "--version" : o->list ? "--list" : NULL;

    if (name && o->given > 1)
        return err_set("%s takes no other option beside it", name);
    if (name && o->file && !o->list)
        return err_set("%s takes no argument; leave out %s", name, o->file);
    return 0;
}

/* run-ablation judge FILE.h5, whose first word has been read. */
static int parse_judge(int argc, char **argv, struct options *o)
{
    if (optind == argc)
        return err_set("judge needs a file: run-ablation judge FILE.h5");
    o->judge.file = argv[optind++];
    if (optind < argc)
        return err_set("judge takes one file; %s is another", argv[optind]);
    o->judge.tsv = o->tsv;
    o->judge.verbose = o->verbose;
    if (o->given != (o->judge.as != NULL) + (o->judge.partial != NULL) + o->tsv + o->verbose)
        return err_set("judge takes only --as, --partial, --tsv and --verbose beside it");
    return o->tsv && o->verbose
               ? err_set("--tsv has a record for each check already; leave out --verbose")
               : 0;
}

/* --inputs: words begin with an operation, or have a key; anything else is a file. */
static int parse_inputs(struct options *o)
{
    char first[64];

    if (o->words || o->file)
        return err_set("--inputs %s: leave out %s", o->inputs, o->words ? "-t" : o->file);
    if (o->verbose || o->baseline || o->threshold || o->goals || o->until)
        return err_set("--inputs runs nothing: leave out --verbose, --baseline and --goals");
    snprintf(first, sizeof first, "%.*s", (int)strcspn(o->inputs, " "), o->inputs);
    if (op_find(first) || strchr(o->inputs, '='))
        o->words = o->inputs;
    else
        o->file = o->inputs;
    return 0;
}

static int check_report(const struct options *o)
{
    if (o->file)
        return err_set("--report takes one file; leave out %s", o->file);
    return o->given != 1 + (o->output != NULL) ? err_set("--report takes only -o beside it") : 0;
}

static int check_summary(const struct options *o)
{
    const struct summary_words *w = &o->summary;

    if (!w->file)
        return w->by || w->csv ? err_set("%s needs --summary", w->by ? "--by" : "--csv") : 0;
    if (o->file)
        return err_set("--summary takes one file; leave out %s", o->file);
    return o->given != 1 + (w->by != NULL) + w->csv
               ? err_set("--summary takes only --by and --csv beside it")
               : 0;
}

static int parse_decode(int argc, char **argv, struct options *o)
{
    if (argc - optind != 2 || o->given > 1)
        return err_set("--decode takes three words and nothing else: PARAMETERS BITS GB/S");
    o->decode_bits = argv[optind];
    o->decode_rate = argv[optind + 1];
    return 0;
}

/* The words behind the options, and which options go with them. */
static int parse_operands(int argc, char **argv, struct options *o)
{
    if (o->decode)
        return parse_decode(argc, argv, o);
    if (optind < argc)
        o->file = argv[optind++];
    if (o->file && strcmp(o->file, "judge") == 0 && !o->list)
        return parse_judge(argc, argv, o);
    if (o->judge.as || o->judge.partial)
        return err_set("%s belongs to run-ablation judge", o->judge.as ? "--as" : "--partial");
    if (check_alone(o))
        return -1;
    if (optind < argc)
        return err_set("%s and %s are two %s; give one", o->file, argv[optind],
                       o->list ? "operations" : "files");
    if (o->list || o->help || o->version)
        return 0;
    if (check_summary(o))
        return -1;
    if (o->summary.file)
        return 0;
    if (o->report)
        return check_report(o);
    if (check_random(o))
        return -1;
    if (o->inputs && (o->random.n || parse_inputs(o)))
        return o->random.n ? err_set("--random draws its own cases; leave out --inputs") : -1;
    if (o->verbose && o->tsv)
        return err_set("--tsv has a record for each check already; leave out --verbose");
    if (o->goals && strcmp(o->goals, "fail") != 0 && strcmp(o->goals, "report") != 0)
        return err_set("--goals %s: must be fail or report", o->goals);
    if (o->until && until_read(o->until, &o->time))
        return -1;
    if (o->words && o->file)
        return err_set("-t and the file %s cannot both be run; give one", o->file);
    return o->words || o->file || o->random.n ? 0 : err_set("no FILE.ini and no -t WORDS is given");
}

enum {
    OPT_RESUME = 256,
    OPT_FORCE,
    OPT_BASELINE,
    OPT_THRESHOLD,
    OPT_GOALS,
    OPT_UNTIL,
    OPT_TSV,
    OPT_VERBOSE,
    OPT_RANDOM,
    OPT_FROM,
    OPT_SEED,
    OPT_OP,
    OPT_CHECKS,
    OPT_JUDGE,
    OPT_INPUTS,
    OPT_AS,
    OPT_PARTIAL,
    OPT_REPORT,
    OPT_SUMMARY,
    OPT_BY,
    OPT_CSV,
    OPT_DECODE,
    OPT_LIST,
    OPT_VERSION
};

static const char short_options[] = ":ht:no:";
static const struct option known[] = {
    {"plan", no_argument, NULL, 'n'},
    {"resume", optional_argument, NULL, OPT_RESUME},
    {"force", no_argument, NULL, OPT_FORCE},
    {"baseline", required_argument, NULL, OPT_BASELINE},
    {"threshold", required_argument, NULL, OPT_THRESHOLD},
    {"goals", required_argument, NULL, OPT_GOALS},
    {"until", required_argument, NULL, OPT_UNTIL},
    {"tsv", no_argument, NULL, OPT_TSV},
    {"verbose", no_argument, NULL, OPT_VERBOSE},
    {"random", required_argument, NULL, OPT_RANDOM},
    {"from", required_argument, NULL, OPT_FROM},
    {"seed", required_argument, NULL, OPT_SEED},
    {"op", required_argument, NULL, OPT_OP},
    {"checks", required_argument, NULL, OPT_CHECKS},
    {"judge", required_argument, NULL, OPT_JUDGE},
    {"inputs", required_argument, NULL, OPT_INPUTS},
    {"as", required_argument, NULL, OPT_AS},
    {"partial", required_argument, NULL, OPT_PARTIAL},
    {"report", required_argument, NULL, OPT_REPORT},
    {"summary", required_argument, NULL, OPT_SUMMARY},
    {"by", required_argument, NULL, OPT_BY},
    {"csv", no_argument, NULL, OPT_CSV},
    {"decode", required_argument, NULL, OPT_DECODE},
    {"list", no_argument, NULL, OPT_LIST},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

/* Is it an option, or the beginning of one, rather than what another option needs? */
static int is_option(const char *word)
{
    if (strncmp(word, "--", 2) != 0)
        return word[0] == '-' && word[1] && strchr(short_options, word[1]) && word[1] != ':';
    for (const struct option *k = known; k->name; k++)
        if (strncmp(k->name, word + 2, strcspn(word + 2, "=")) == 0)
            return 1;
    return 0;
}

/* The argument of an option that is given once. */
static int take_once(const char **to, const char *name)
{
    if (*to)
        return err_set("%s is given twice", name);
    *to = optarg;
    return 0;
}

static int parse_options(int argc, char **argv, struct options *o)
{
    int c;

    while ((c = getopt_long(argc, argv, short_options, known, NULL)) != -1) {
        o->given++;
        if (optarg && optarg == argv[optind - 1] && is_option(optarg))
            return err_set("%s needs an argument, and %s is an option", argv[optind - 2], optarg);
        switch (c) {
        case 't': o->words = optarg; break;
        case 'n': o->plan = 1; break;
        case 'o': o->output = optarg; break;
        case OPT_RESUME:
            if (unfinished_option(optarg, &o->resume))
                return -1;
            break;
        case OPT_FORCE: o->force = 1; break;
        case OPT_BASELINE: o->baseline = optarg; break;
        case OPT_THRESHOLD: o->threshold = optarg; break;
        case OPT_UNTIL: o->until = optarg; break;
        case OPT_GOALS: o->goals = optarg; break;
        case OPT_TSV: o->tsv = 1; break;
        case OPT_VERBOSE: o->verbose = 1; break;
        case OPT_RANDOM: o->random.n = optarg; break;
        case OPT_FROM: o->random.from = optarg; break;
        case OPT_SEED: o->random.seed = optarg; break;
        case OPT_OP: o->random.op = optarg; break;
        case OPT_CHECKS: o->random.checks = optarg; break;
        case OPT_JUDGE: o->random.judge = optarg; break;
        case OPT_INPUTS: o->inputs = optarg; break;
        case OPT_AS:
            if (take_once(&o->judge.as, "--as"))
                return -1;
            break;
        case OPT_PARTIAL:
            if (take_once(&o->judge.partial, "--partial"))
                return -1;
            break;
        case OPT_REPORT: o->report = optarg; break;
        case OPT_SUMMARY: o->summary.file = optarg; break;
        case OPT_BY: o->summary.by = optarg; break;
        case OPT_CSV: o->summary.csv = 1; break;
        case OPT_DECODE: o->decode = optarg; break;
        case OPT_LIST: o->list = 1; break;
        case 'h': o->help = 1; break;
        case OPT_VERSION: o->version = 1; break;
        default: return wrong_option(c, argv);
        }
    }
    return parse_operands(argc, argv, o);
}

/* Everything that was printed must have arrived. */
static int finish(int status)
{
    if (fflush(stdout) || ferror(stdout)) {
        perror("run-ablation: standard output");
        return BAD_INPUT;
    }
    return status;
}

static int show_only(const struct options *options)
{
    if (options->help)
        fputs(usage, stdout);
    else if (options->version)
        list_version(stdout);
    else if (list(stdout, options->file))
        return complain(BAD_INPUT);
    return finish(GOOD);
}

/* The first file to be opened would become standard output where that is
 * closed, and the report be written into it.  Whoever closes it wants none. */
static void open_standard(void)
{
    static const int mode[] = {O_RDONLY, O_WRONLY, O_WRONLY};
    for (int fd = 0; fd < (int)COUNT(mode); fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) != fd)
            _exit(BAD_INPUT); /* there is nowhere to say why */
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct experiment x;
    struct leader *const leader = process_leader();

    struct ranks ranks = {0, 1, 0, 1};

    words_of_program = argv;
    open_standard();
    if (!leader && ranks_begin(&ranks))
        return complain(BAD_INPUT);
    if (ranks.rank)
        return processes_serve(argv);
    H5dont_atexit(); /* every file is closed before; one that a full disk left unclosed crashes there */
    signal(SIGXFSZ, SIG_IGN); /* a write then fails with a reason instead */
    opterr = 0;
    if (parse_options(argc, argv, &options)) {
        fprintf(stderr, "run-ablation: %s; try run-ablation --help\n", err_text());
        return BAD_INPUT;
    }
    if (options.help || options.version || options.list)
        return show_only(&options);
    if (options.decode) {
        int e = decode_command(options.decode, options.decode_bits, options.decode_rate);
        return finish(e ? complain(BAD_INPUT) : GOOD);
    }
    if (begin())
        return complain(BAD_INPUT);
    if (options.random.n) {
        stop_on_signals();
        int status = random_command(&options.random, &stop);
        return finish(status == BAD_INPUT || status == BACKEND_MISSING ? complain(status) : status);
    }
    if (options.judge.file) {
        stop_on_signals();
        int status = judge_command(&options.judge, &stop);
        return finish(status == BAD_INPUT && *err_text() ? complain(status) : status);
    }
    if (options.summary.file) {
        int status = summary_command(&options.summary);
        return finish(status == BAD_INPUT ? complain(status) : status);
    }
    if (options.report) {
        int status = page_command(options.report, options.output);
        return finish(status == BAD_INPUT ? complain(status) : status);
    }
    FILE *const to = leader ? fopen("/dev/null", "w") : stderr; /* the leader says it */
    int errors = !options.words
                     ? plan_read(options.file, &x, to)
                     : plan_words_of(options.words, options.inputs ? "--inputs" : "-t", &x, to);
    if (errors)
        return BAD_INPUT;
    x.contexts = process_contexts();
    if (options.output && strlen(options.output) >= sizeof x.output) {
        fprintf(stderr, "run-ablation: the name after -o is too long\n");
        return BAD_INPUT;
    }
    if (options.output) {
        strcpy(x.output, options.output);
        x.scratch = 0;
    }
    if (options.inputs && plan_inputs_only(&x)) {
        fprintf(stderr, "run-ablation: %s\n", err_text());
        plan_free(&x);
        return BAD_INPUT;
    }
    int status = GOOD;
    if (leader)
        status = work(&x, &options, leader);
    else if (options.plan)
        show_plan(&x, &ranks);
    else
        status = run(&x, &options, &ranks);
    plan_free(&x);
    return finish(status);
}
