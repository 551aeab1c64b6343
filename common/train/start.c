/* The weights that a model starts from (start.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/ops/e74.h"
#include "common/train/start.h"

/* Weights that start at 1; all others that are no matrices start at 0. */
static const struct {
    const char *op, *arg;
} ones[] = {{"rmsnorm", "w"},       {"layernorm", "w"},      {"qk_norm", "w_q"},
            {"qk_norm", "w_k"},     {"e74_block", "w_norm"}, {"dual_memory", "g_z"},
            {"dual_memory", "g_r"}, {"dual_memory", "g_h"}};

/* Its contract, by the call that reads it. */
static const struct call *reader_of(const struct call *model, int *arg)
{
    const struct arg *a = &model->op->arg[*arg];
    return a->own ? a->own(model, arg) : model;
}

static int is_b_z(const struct call *c, int arg)
{
    return strncmp(c->op->name, "e74", 3) == 0 && strcmp(c->op->arg[arg].name, "b_z") == 0;
}

static double b_z(const struct call *c)
{
    switch (c->choice[E74_Z_ACT]) {
    case E74_SIGMOID: return (double)(float)log(9);
    case E74_TWICE_SIGMOID: return 0;
    default: return 1;
    }
}

static double constant(const struct call *c, int arg)
{
    if (is_b_z(c, arg))
        return b_z(c);
    for (int i = 0; i < (int)COUNT(ones); i++)
        if (strcmp(ones[i].op, c->op->name) == 0 && strcmp(ones[i].arg, c->op->arg[arg].name) == 0)
            return 1;
    return 0;
}

/* Does it write into the residual stream: W_o, "1.o.W", or an MLP's last matrix, "1.d.W"? */
static int is_output(const char *name)
{
    const char *line = strchr(name, '.');
    return line &&
           (strcmp(line, ".o.W") == 0 || strcmp(line, ".d.W") == 0 || strcmp(line, ".x.W_o") == 0);
}

void start_draw(const struct call *model, int arg, int64_t blocks, uint64_t seed, double *x)
{
    const char *name = model->op->arg[arg].name;
    const int64_t n = op_count(model, arg);
    const uint64_t key = draw_key(seed, name);
    int own = arg;
    const struct call *c = reader_of(model, &own);
    const enum fill fill = op_fill(c, own);
    const char *shape = op_shape(c, own);
    const int embeds = c->op == &op_embedding;
    const double fan = fill == FAN ? sqrt((double)DIM(c, shape[strlen(shape) - 1])) : 1;
    const double size = 1 / fan / (is_output(name) ? sqrt(2 * (double)blocks) : 1);
    const double value = constant(c, own);

    #pragma omp parallel for if (n > 4096)
    for (int64_t i = 0; i < n; i++)
        x[i] = fill == FAN || embeds ? (double)(float)(size * draw_normal(key, i)) : value;
}
