/* run-ablation --list (list.h). */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/gguf.h"
#include "common/base/guess.h"
#include "common/base/number.h"
#include "common/plan/keys.h"
#include "common/plan/programs.h"
#include "common/plan/training.h"
#include "common/train/cell.h"
#include "experiments/begin.h"
#include "experiments/list.h"

static void list_param(FILE *to, const struct param *p)
{
    char what[200] = "";
    if (p->choices) {
        for (int i = 0; p->choices[i]; i++)
            snprintf(what + strlen(what), sizeof what - strlen(what), "%s%s", i ? " " : "",
                     p->choices[i]);
        fprintf(to, "    %-20s %-34s [%s]  %s\n", p->name, what, p->choices[p->initial], p->help);
    } else if (p->real) {
        snprintf(what, sizeof what, "%g to %g, real%s%s", p->real->min, p->real->max,
                 p->real->word ? ", or " : "", p->real->word ? p->real->word : "");
        fprintf(to, "    %-20s %-34s [%g]  %s\n", p->name, what, p->real->initial, p->help);
    } else {
        snprintf(what, sizeof what, "%" PRId64 " to %" PRIu64, p->min,
                 p->seed ? UINT64_MAX : (uint64_t)p->max);
        fprintf(to, "    %-20s %-34s [%" PRId64 "]  %s\n", p->name, what, p->initial, p->help);
    }
}

/* "[steps,batch,dim]" of an argument in the operation's default sizes. */
static void shape_text(const struct op *o, const char *shape, char *text, size_t size)
{
    size_t used = snprintf(text, size, "[");
    for (const char *c = shape; *c && used < size; c++)
        used += snprintf(text + used, size - used, "%s%s", op_axis(o, *c), c[1] ? "," : "");
    if (used < size)
        snprintf(text + used, size - used, "]");
}

/* The case in which one choice is another than by default, or one real number
 * 1 instead of 0; nonzero where there is none. */
static int changed(const struct op *o, int param, int choice, struct call *f)
{
    const struct param *p = &o->param[param];

    op_defaults(o, f);
    if (p->choices ? choice == p->initial : !p->real || p->real->initial != 0 || choice)
        return -1;
    f->choice[param] = choice;
    if (p->real)
        f->real[param] = p->real->max < 1 ? p->real->max : 1;
    return op_complete(f);
}

/* "; state=diagonal: [batch,heads,n_state]": where one setting gives the
 * argument another shape than by default, takes it away, or makes it be there. */
static void list_settings(FILE *to, const struct op *o, int arg, const struct call *defaults)
{
    int there = op_has(defaults, arg), found = there;

    for (int i = 0; i < o->n_params; i++)
        for (int c = 0; c == 0 || (o->param[i].choices && o->param[i].choices[c]); c++) {
            char value[32], was[200], shape[200];
            struct call f;
            if (changed(o, i, c, &f) || f.op != o)
                continue; /* (a program of other sizes has tensors of its own) */
            int has = op_has(&f, arg);
            shape_text(o, op_shape(defaults, arg), was, sizeof was);
            shape_text(o, op_shape(&f, arg), shape, sizeof shape);
            if (there == has && (!has || strcmp(was, shape) == 0))
                continue;
            found = 1;
            if (o->param[i].real)
                fprintf(to, "; %s not 0: ", o->param[i].name);
            else
                fprintf(to, "; %s=%s: ", o->param[i].name, op_value(&f, i, value));
            fputs(has ? shape : "none", to);
        }
    if (!found)
        fputs("; there with other settings together", to);
}

static void list_arg(FILE *to, const struct op *o, int arg)
{
    const struct arg *a = &o->arg[arg];
    struct call f;
    char shape[200] = "none";

    op_defaults(o, &f);
    op_complete(&f);
    if (op_has(&f, arg))
        shape_text(o, op_shape(&f, arg), shape, sizeof shape);
    fprintf(to, "    %-12s %-6s %s", a->name,
            a->flags & IN    ? "in"
            : a->flags & OUT ? "out"
                             : "saved",
            shape);
    list_settings(to, o, arg, &f);
    fputc('\n', to);
}

static void list_kernels(FILE *to, const struct op *o)
{
    for (const struct backend *const *b = backends(); *b; b++) {
        const struct impl *k = op_kernel(o, *b, 0);
        const char *why = backend_unavailable(process_contexts(), *b);
        if (!k)
            fprintf(to, "    %-8s none (%s)\n", (*b)->name, why ? why : "not written yet");
        for (int i = 0; (k = op_kernel(o, *b, i)); i++)
            fprintf(to, "    %-8s %-10s %s\n", (*b)->name, k->name, k->idea);
    }
}

/* The cost of the default case; see struct op. */
static void list_cost(FILE *to, const struct op *o)
{
    struct call f;

    op_defaults(o, &f);
    op_complete(&f);
    for (enum pass p = FORWARD; p < op_passes(o); p++) {
        double products = o->products ? o->products(&f, p) : 0;
        struct chain c = o->chain ? o->chain(&f, p) : (struct chain){0, 0, 0};
        fprintf(to,
                "    %-9s %.4g MFLOP, %.4g of them in matrix products; %.4g M special functions",
                pass_names[p], o->flops(&f, p) * 1e-6, products * 1e-6,
                o->specials ? o->specials(&f, p) * 1e-6 : 0);
        if (c.steps > 0)
            fprintf(to, "; chain of %.0f steps, %.0f FLOP + %.0f special each", c.steps, c.flops,
                    c.specials);
        fputc('\n', to);
    }
}

/* The sites of a list "z dz". */
static void list_sites(FILE *to, const char *what, const char *sites)
{
    if (!sites)
        return;
    fprintf(to, "  sites, %s\n    ", what);
    for (const char *at = sites; *at; at++)
        fputs(*at == ' ' ? ", " : (const char[]){*at, 0}, to);
    fprintf(to, "\n");
}

static void list_op(FILE *to, const struct op *o)
{
    fprintf(to, "%s    %s\n", o->name, o->formula);
    fprintf(to, "  source: %s\n  parameters [default]\n", o->source);
    for (int i = 0; i < o->n_params; i++)
        list_param(to, &o->param[i]);
    fprintf(to, "  tensors\n");
    for (int i = 0; i < o->n_args; i++)
        list_arg(to, o, i);
    list_sites(to, "where a result in the storage type may have that type's rounding", o->sites);
    list_sites(to, "where that must be declared", o->declared);
    fprintf(to, "  cost with the defaults\n");
    list_cost(to, o);
    fprintf(to, "  kernels\n");
    list_kernels(to, o);
}

static int is_of_training(const struct plan_key *k)
{
    static const char of[] = "of measure = train: ";
    return strncmp(k->help, of, sizeof of - 1) == 0;
}

/* Those of training alone, or the others. */
static void list_keys(FILE *to, const char *section, const struct plan_key *k, int of_training)
{
    char initial[64];

    fprintf(to, "%s\n", section);
    for (; k->name; k++) {
        if (is_of_training(k) != of_training)
            continue;
        snprintf(initial, sizeof initial, k->initial ? "[%s]" : "%s", k->initial ? k->initial : "");
        fprintf(to, "    %-12s %-34s %s\n", k->name, initial, k->help);
    }
    fputc('\n', to);
}

static int no_operation(const char *name)
{
    struct guess g = {name, NULL, 0};

    for (int i = 0; i < N_OPS; i++)
        guess_among(&g, ops[i]->name);
    return g.best ? err_set("no operation %s; did you mean '%s'?", name, g.best)
                  : err_set("no operation %s; run-ablation --list shows all", name);
}

static void list_tensor(FILE *to, const struct gguf_tensor *t, int width)
{
    char type[32], shape[128], bytes[32] = "-";

    snprintf(type, sizeof type, "unknown(%" PRIu32 ")", t->type_id);
    gguf_shape_text(t, shape, sizeof shape);
    if (t->bytes >= 0)
        snprintf(bytes, sizeof bytes, "%" PRId64, t->bytes);
    fprintf(to, "%-*s %-8s %-24s %s\n", width, t->name, t->type ? t->type->name : type, shape,
            bytes);
}

/* Of which shards the tensors are, where they are a shard's. */
static void list_shards(FILE *to, const struct gguf *g, int64_t tensors)
{
    char why[1024];
    const int missing = gguf_missing(g, why, sizeof why);

    if (!g->shards)
        return;
    fprintf(to, "shards:");
    for (const struct gguf *s = g; s; s = s->next)
        fprintf(to, " %d", s->shard);
    fprintf(to, " of %d", g->shards);
    if (g->all && g->all != tensors)
        fprintf(to, "; all have %" PRId64 " tensors", g->all);
    if (missing)
        fprintf(to, "; %d not read: %s", missing, why);
    fputc('\n', to);
}

/* The tensors of a GGUF file and of the shards beside it, a line for each. */
static int list_file(FILE *to, const char *file)
{
    struct gguf *g = gguf_open(file);
    int width = 6;
    double bytes = 0; /* a file may say of each tensor that it has nearly 2^63 */
    int64_t n = 0;
    char text[NUMBER_TEXT];

    if (!g)
        return -1;
    for (const struct gguf *s = g; s; s = s->next)
        for (int64_t i = 0; i < s->n_tensors; i++) {
            const int columns = (int)strlen(s->tensor[i].name);
            width = columns > width ? columns : width;
            bytes += s->tensor[i].bytes > 0 ? (double)s->tensor[i].bytes : 0;
        }
    fprintf(to, "%-*s %-8s %-24s %s\n", width, "tensor", "type", "shape", "bytes");
    for (const struct gguf *s = g; s; n += s->n_tensors, s = s->next)
        for (int64_t i = 0; i < s->n_tensors; i++)
            list_tensor(to, &s->tensor[i], width);
    fprintf(to, "GGUF version %d: %" PRId64 " tensors, %s; the slowest axis is first\n", g->version,
            n, number_bytes(bytes, text));
    list_shards(to, g, n);
    gguf_close(g);
    return 0;
}

/* A mixer's own keys, or those that every run has. */
static void list_own(FILE *to, const struct op *o, const struct op *mixer, int own)
{
    for (int i = 0; i < o->n_params; i++)
        if ((mixer && i < mixer->n_params) == own && cell_has_key(o, i) &&
            strcmp(o->param[i].name, "mixer"))
            list_param(to, &o->param[i]);
}

static int list_training(FILE *to)
{
    const struct op *mixer;
    const char *name;

    fputs(
        "train    one model, one task, one rate and one seed, trained to its end: measure = train\n"
        "  source: common/train/cell.h, doc/training.md\n  keys of each run [default]\n"
        "    mixer                of those below: what mixes the tokens of a sequence\n",
        to);
    list_own(to, cell_op("none"), NULL, 0);
    for (int i = 0; (name = cell_mixer(i, &mixer)); i++) {
        fprintf(to, "  and of mixer = %s\n", name);
        list_own(to, cell_op(name), mixer, 1);
    }
    fputc('\n', to);
    list_keys(to, "and, besides those of every measure, [experiment]", experiment_keys, 1);
    list_keys(to, "[trial], or the section in which it belongs", trial_keys, 1);
    return 0;
}

int list(FILE *to, const char *name)
{
    if (name && strcmp(name, TRAIN_OP) == 0)
        return list_training(to);
    if (name) {
        const char *program = program_file(name);
        const struct op *o = program ? program_load(program) : op_find(name);
        struct call f;
        if (program && o) {
            op_defaults(o, &f);
            o = op_complete(&f) ? NULL : f.op;
        }
        if (!o && program)
            return -1;
        if (!o && strpbrk(name, "./"))
            return list_file(to, name);
        if (!o)
            return no_operation(name);
        list_op(to, o);
        return 0;
    }
    for (int i = 0; i < N_OPS; i++)
        fprintf(to, "%-14s %s\n", ops[i]->name, ops[i]->formula);
    fputs("run-ablation --list NAME shows one: parameters, tensors, cost, kernels\n\n", to);
    list_keys(to, "[experiment]", experiment_keys, 0);
    fputs("run-ablation --list train shows the keys of measure = train\n\n", to);
    list_keys(to, "[trial]: op, the operation's parameters, and", trial_keys, 0);
    fputs("An item of a list in [trial] may be a range: 11 .. 26, 64:4096 x2,\n"
          "1000:60000 random 20\n",
          to);
    return 0;
}

void list_version(FILE *to)
{
    fprintf(to, "%s\n", PACKAGE_STRING);
    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(process_contexts(), *b);
        fprintf(to, "  %-8s %s\n", (*b)->name, why ? why : backend_device(process_contexts(), *b));
    }
}
