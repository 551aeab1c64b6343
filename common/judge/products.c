/* Freivalds' check: all elements of a product of matrices, by random sums (sampled.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/values.h"
#include "common/judge/sampled.h"

/* ---- a product, as its contract describes it ---- */

/* Are the tensors that it names numbers?  Those that are not there do not matter. */
static int of_numbers(const struct call *f, const struct product *p)
{
    const char *const names[] = {p->result, p->left, p->right, p->added};
    int grad, numbers = 1;

    for (size_t i = 0; i < COUNT(names); i++) {
        const int arg = names[i] ? tensor_find(f->op, names[i], &grad) : -1;
        numbers &= arg < 0 || !op_is_bytes(f, arg);
    }
    return numbers;
}

const struct product *product_of(const struct call *f, int arg, int grad)
{
    int of_grad;

    for (const struct product *p = f->op->product; p && p->result; p++)
        if (tensor_find(f->op, p->result, &of_grad) == arg && of_grad == grad && of_numbers(f, p) &&
            (!p->when || p->when(f)))
            return p;
    return NULL;
}

/* A matrix of each product: element (i, j) of product g is at[g * each + i * row + j * column]. */
struct view {
    const double *at;
    int64_t each, row, column;
};

/* The products: result [M,N], left [M,K], right [K,N], G of them. */
struct shape {
    char letter[4]; /* of i, j, k and g; 0 for no g */
    int64_t M, N, K, G;
};

/* The first letter that a has, and b or not, and c or not. */
static char letter_in(const char *a, const char *b, int in_b, const char *c, int in_c)
{
    for (; *a; a++)
        if ((strchr(b, *a) != NULL) == in_b && (strchr(c, *a) != NULL) == in_c)
            return *a;
    return 0;
}

static struct shape shape_of(const struct call *f, const char *result, const char *left,
                             const char *right)
{
    const char i = letter_in(result, left, 1, right, 0), j = letter_in(result, left, 0, right, 1);
    const char k = letter_in(left, right, 1, result, 0), g = letter_in(result, left, 1, right, 1);
    return (struct shape){{i, j, k, g}, DIM(f, i), DIM(f, j), DIM(f, k), g ? DIM(f, g) : 1};
}

static int64_t stride_of(const struct call *f, const char *shape, char letter)
{
    const char *at = letter ? strchr(shape, letter) : NULL;
    int64_t stride = 1;

    if (!at)
        return 0;
    for (at++; *at; at++)
        stride *= DIM(f, *at);
    return stride;
}

/* The product while it is checked. */
struct checked {
    const struct call *f;
    const struct product *p;
    const struct expected *e;
    struct shape n;
    struct view C, A, B, added, before; /* `before` is what backward adds to */
    double scale, added_scale;
    int arg, grad;
    int kept;        /* are its sums those of all kernels? */
    double *slopes;  /* a copy of the left factor; NULL: none is needed */
    double largest;  /* type of the result */
    uint64_t key;    /* of the weights */
    double weights;  /* the size of those of a segment */
    int64_t n_parts; /* segments of a row */
};

/* The values of a tensor: inputs, gradients of outputs, or results. */
static const double *values_of(const struct tensors *got, const struct sampled *s, int arg,
                               int grad)
{
    const int given = s->call.op->arg[arg].flags & (grad ? OUT : IN);
    return tensors_result(given ? s->inputs : got, arg, grad);
}

static struct view view_of(const struct checked *c, const struct tensors *got,
                           const struct sampled *s, const char *name, const char rows,
                           const char columns)
{
    int grad;
    const int arg = tensor_find(c->f->op, name, &grad);
    const char *shape = op_shape(c->f, arg);

    return (struct view){values_of(got, s, arg, grad), stride_of(c->f, shape, c->n.letter[3]),
                         stride_of(c->f, shape, rows), stride_of(c->f, shape, columns)};
}

/* The left factor, each element times its slope. */
static int multiply_slopes(struct checked *c, const struct tensors *got, const struct sampled *s)
{
    const int64_t n = c->n.G * c->n.M * c->n.K;
    const struct op *o = c->f->op;
    double *x[MAX_ARGS];

    c->slopes = malloc(n * sizeof *c->slopes);
    if (!c->slopes)
        return err_set("no memory for a factor of %s", c->p->result);
    for (int i = 0; i < o->n_args; i++)
        x[i] = (double *)values_of(got, s, i, 0);
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        c->slopes[i] = c->A.at[i] * c->p->slope(c->f, x, i);
    c->A.at = c->slopes;
    return 0;
}

static const char *shape_named(const struct call *f, const char *name)
{
    int grad;
    return op_shape(f, tensor_find(f->op, name, &grad));
}

/* The root of the sum of the squares of a segment's weights: its sum is so many errors off. */
static double size_of_weights(void)
{
    double sum = 0;
    for (int k = 0; k < SEGMENT; k++)
        sum += (1 + (double)k / SEGMENT) * (1 + (double)k / SEGMENT);
    return sqrt(sum);
}

/* Is the tensor of that name the case's own, and no kernel's result? */
static int is_given(const struct op *o, const char *name)
{
    int grad;
    const int arg = tensor_find(o, name, &grad);
    return (o->arg[arg].flags & (grad ? OUT : IN)) != 0;
}

static int begin(struct checked *c, const struct tensors *got, const struct sampled *s)
{
    const struct product *p = c->p;
    const struct call *f = c->f;

    c->arg = tensor_find(f->op, p->result, &c->grad);
    c->n = shape_of(f, op_shape(f, c->arg), shape_named(f, p->left), shape_named(f, p->right));
    const char i = c->n.letter[0], j = c->n.letter[1], k = c->n.letter[2];
    c->C = view_of(c, got, s, p->result, i, j);
    c->A = view_of(c, got, s, p->left, i, k);
    c->B = view_of(c, got, s, p->right, k, j);
    if (p->added && op_has(f, op_arg(f->op, p->added)))
        c->added = view_of(c, got, s, p->added, i, j);
    if (c->grad && call_accumulates(f, c->arg)) {
        c->before = c->C;
        c->before.at = s->inputs->g0[c->arg];
    }
    c->kept = !p->slope && is_given(f->op, p->left) && is_given(f->op, p->right);
    c->scale = p->scale ? p->scale(f) : 1;
    c->added_scale = p->added_scale ? p->added_scale(f) : 1;
    c->largest = types[call_type(f, c->arg, c->grad)].largest;
    c->key = draw_key(draw_key(s->seed, "weights"), p->result);
    c->weights = size_of_weights();
    c->n_parts = (c->n.N + SEGMENT - 1) / SEGMENT;
    return p->slope ? multiply_slopes(c, got, s) : 0;
}

/* ---- the random sums ---- */

static double element(const struct view *v, int64_t g, int64_t i, int64_t j)
{
    return v->at[g * v->each + i * v->row + j * v->column];
}

/* What is added to the sum of products. */
static double addend(const struct checked *c, int64_t g, int64_t i, int64_t j)
{
    double x = c->added.at ? c->added_scale * element(&c->added, g, i, j) : 0;
    return c->before.at ? x + element(&c->before, g, i, j) : x;
}

static int64_t end_of(const struct checked *c, int64_t part)
{
    return part + 1 < c->n_parts ? (part + 1) * SEGMENT : c->n.N;
}

/* Of each segment the weights 1, 1 + 1/16 ... in random order, with random signs: no two are alike,
 * so that elements which have changed places show. */
static void draw_weights(const struct checked *c, double *r)
{
    for (int64_t from = 0; from < c->n.N; from += SEGMENT) {
        double w[SEGMENT];
        for (int k = 0; k < SEGMENT; k++)
            w[k] = 1 + (double)k / SEGMENT;
        for (int k = SEGMENT - 1; k > 0; k--) {
            const int other = (int)(draw_uniform(c->key, 2 * (from + k)) * (k + 1));
            const double was = w[k];
            w[k] = w[other];
            w[other] = was;
        }
        for (int k = 0; k < SEGMENT && from + k < c->n.N; k++)
            r[from + k] = draw_uniform(c->key, 2 * (from + k) + 1) < 0.5 ? -w[k] : w[k];
    }
}

/* Part p of row k of B r. */
static double sum_part(const struct checked *c, int64_t g, const double *r, int64_t k, int64_t p)
{
    double sum = 0;
    for (int64_t j = p * SEGMENT; j < end_of(c, p); j++)
        sum += r[j] * element(&c->B, g, k, j);
    return sum;
}

/* V [n_parts,K] = (B r)^T, in the order in which B is stored. */
static void sum_right(const struct checked *c, int64_t g, const double *r, double *V)
{
    const int64_t K = c->n.K, P = c->n_parts;

    if (c->B.column == 1) {
        #pragma omp parallel for
        for (int64_t k = 0; k < K; k++)
            for (int64_t p = 0; p < P; p++)
                V[p * K + k] = sum_part(c, g, r, k, p);
        return;
    }
    #pragma omp parallel for
    for (int64_t p = 0; p < P; p++)
        for (int64_t k = 0; k < K; k++)
            V[p * K + k] = sum_part(c, g, r, k, p);
}

/* U [M,n_parts] = scale A V^T */
static void multiply(const struct checked *c, int64_t g, const double *V, double *U)
{
    enum { PANEL = 128 };
    const int flip = c->A.row == 1 && c->A.column != 1;
    const int64_t distance = flip ? c->A.column : c->A.row, least = flip ? 1 : c->n.K;
    const int ld = (int)(distance > least ? distance : least);
    const int K = (int)c->n.K, P = (int)c->n_parts;
    const double *A = c->A.at + g * c->A.each;

    ref64.machine->device.enter(NULL); /* its BLAS is as in the oracle's passes */
    #pragma omp parallel for
    for (int64_t i = 0; i < c->n.M; i += PANEL)
        cblas_dgemm(CblasRowMajor, flip ? CblasTrans : CblasNoTrans, CblasTrans,
                    (int)(c->n.M - i < PANEL ? c->n.M - i : PANEL), P, K, c->scale,
                    A + i * c->A.row, ld, V, K, 0, U + i * P, P);
}

/* ---- segments ---- */

/* The sums of a part of the checked product. */
struct totals {
    double size;         /* the largest element of segments that are not far off */
    double off, squares; /* the squares of what sums are off by; of all elements */
    double along, sums;  /* what sums are off by times the sums of elements; the squares of those */
    int64_t judged, n;   /* elements, segments */
};

/* How far a segment's sum is off, as a multiple of what is expected; below 0: the sum is not finite,
 * or beyond what the type can hold, and says nothing.  *t gains its sums. */
static double off_by(const struct checked *c, int64_t g, int64_t i, int64_t part, double want,
                     const double *r, struct totals *t)
{
    double sum = 0, all = 0, most = 0, squares = 0;

    if (!isfinite(want) || fabs(want) > c->largest)
        return -1;
    t->judged += end_of(c, part) - part * SEGMENT;
    for (int64_t j = part * SEGMENT; j < end_of(c, part); j++) {
        const double x = element(&c->C, g, i, j);
        if (!isfinite(x))
            return INFINITY;
        sum += r[j] * (x - addend(c, g, i, j));
        all += r[j] * x;
        most = fmax(most, fabs(x));
        squares += x * x;
    }
    const double expected = c->weights * c->e->error * fmax(c->e->size, fabs(want));
    const double off = sum == want ? 0 : fabs(sum - want) / expected;
    t->squares += squares;
    t->off += (sum - want) * (sum - want);
    t->along += (sum - want) * all;
    t->sums += all * all;
    t->n++;
    if (off <= 1)
        t->size = fmax(t->size, most);
    return off;
}

/* How far each segment of product g is off, whose sums should be U. */
static void compare(const struct checked *c, int64_t g, const double *r, const double *U,
                    double *off, struct totals *t)
{
    struct totals *row = calloc(c->n.M, sizeof *row);

    #pragma omp parallel for if (row != NULL)
    for (int64_t i = 0; i < c->n.M; i++)
        for (int64_t p = 0; p < c->n_parts; p++) {
            const int64_t at = i * c->n_parts + p;
            off[at] = off_by(c, g, i, p, U[at], r, row ? &row[i] : t);
        }
    for (int64_t i = 0; row && i < c->n.M; i++) {
        t->size = fmax(t->size, row[i].size);
        t->off += row[i].off;
        t->squares += row[i].squares;
        t->judged += row[i].judged;
        t->along += row[i].along;
        t->sums += row[i].sums;
        t->n += row[i].n;
    }
    free(row);
}

/* ---- those that are off, element by element ---- */

struct suspect {
    int64_t g, i, part;
    double off;
};

static int by_off(const void *a, const void *b)
{
    const struct suspect *x = a, *y = b;
    return (x->off < y->off) - (x->off > y->off);
}

enum { SUSPECTS = 1024 };

/* Add those of product g to the list of n, which becomes that of the furthest SUSPECTS; the first of
 * all is there in any case. */
static int suspects_add(const struct checked *c, int64_t g, const double *far, struct suspect *list,
                        int n)
{
    for (int64_t i = 0; i < c->n.M; i++)
        for (int64_t p = 0; p < c->n_parts; p++) {
            const double off = far[i * c->n_parts + p];
            if (!n || off > list[0].off)
                list[0] = (struct suspect){g, i, p, off};
            n = n ? n : 1;
            if (!(off > 1))
                continue;
            if (n == 2 * SUSPECTS) {
                qsort(list + 1, n - 1, sizeof *list, by_off);
                n = SUSPECTS;
            }
            list[n++] = (struct suspect){g, i, p, off};
        }
    qsort(list + 1, n - 1, sizeof *list, by_off);
    return n < SUSPECTS ? n : SUSPECTS;
}

/* The element computed in double. */
static double exact(const struct checked *c, int64_t g, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0; k < c->n.K; k++)
        sum += element(&c->A, g, i, k) * element(&c->B, g, k, j);
    return c->scale * sum + addend(c, g, i, j);
}

/* The verdict gains the worst of a suspect's elements, how far it is off. */
static void look_at(const struct checked *c, const struct suspect *u, double *size,
                    struct verdict *v)
{
    for (int64_t j = u->part * SEGMENT; j < end_of(c, u->part); j++) {
        const double x = element(&c->C, u->g, u->i, j), want = exact(c, u->g, u->i, j);
        if (!isfinite(want) || fabs(want) > c->largest)
            continue;
        const double off = isfinite(x) ? fabs(x - want) : INFINITY;
        *size = fmax(*size, fabs(want));
        if (off <= v->error)
            continue;
        v->error = off;
        values_index(c->f, c->arg, u->g * c->C.each + u->i * c->C.row + j * c->C.column, v->worst,
                     sizeof v->worst);
    }
}

/* ---- all of it ---- */

struct buffers {
    double *r, *U, *off;
    struct suspect *suspect;
};

static struct sums *find_sums(const struct sampled *s, const struct product *p)
{
    for (int i = 0; i < s->n_sums; i++)
        if (s->sums[i].of == p)
            return &s->sums[i];
    return NULL;
}

/* What the sums of all segments should be; NULL after err_set(). */
static double *sums_new(const struct checked *c, const double *r)
{
    double *V = malloc(c->n_parts * c->n.K * sizeof *V);
    double *U = malloc(c->n.G * c->n_parts * c->n.M * sizeof *U);

    if (!V || !U) {
        free(V);
        free(U);
        return err_null("no memory to check %s", c->p->result);
    }
    for (int64_t g = 0; g < c->n.G; g++) {
        sum_right(c, g, r, V);
        multiply(c, g, V, U + g * c->n_parts * c->n.M);
    }
    free(V);
    return U;
}

/* Those that are kept for the next kernel, or new ones. */
static double *sums_of(const struct checked *c, struct sampled *s, const double *r)
{
    struct sums *found = c->kept ? find_sums(s, c->p) : NULL, *more;

    if (found)
        return found->U;
    double *U = sums_new(c, r);
    if (!U || !c->kept || !(more = grow(s->sums, s->n_sums, sizeof *more)))
        return U;
    s->sums = more;
    more[s->n_sums++] = (struct sums){c->p, U};
    return U;
}

static int buffers_new(struct buffers *b, const struct checked *c, struct sampled *s)
{
    b->r = malloc(c->n.N * sizeof *b->r);
    b->off = malloc(c->n_parts * c->n.M * sizeof *b->off);
    b->suspect = malloc(2 * SUSPECTS * sizeof *b->suspect);
    if (!b->r || !b->off || !b->suspect)
        return err_set("no memory to check %s", c->p->result);
    draw_weights(c, b->r);
    b->U = sums_of(c, s, b->r);
    return b->U ? 0 : -1;
}

static void buffers_free(struct buffers *b, const struct checked *c, const struct sampled *s)
{
    if (!find_sums(s, c->p))
        free(b->U);
    free(b->r);
    free(b->off);
    free(b->suspect);
}

/* The gain of all elements, |sum e b| / sum b^2, as the weighted sums of segments have it; and the
 * part of it that is the weights' and not the product's, hardly more than so much. */
struct gain {
    double found, chance;
};

static struct gain gain_of(const struct totals *t)
{
    static const double SURE = 6; /* standard deviations */

    if (!(t->sums > 0))
        return (struct gain){0, INFINITY};
    return (struct gain){fabs(t->along) / t->sums, SURE * sqrt(t->off / t->sums / (double)t->n)};
}

/* By the largest element, or by the gain. */
static void decide_by(struct verdict *v, const struct whole *bound, double most, struct gain g)
{
    const double allowed = bound->of[BY_GAIN] + g.chance;
    const int by_gain = g.found / allowed > most / bound->of[BY_MAX];

    v->error = by_gain ? g.found : most;
    v->bound = by_gain ? allowed : bound->of[BY_MAX];
    v->distance = distance_names[by_gain ? BY_GAIN : BY_MAX];
    v->pass = v->error <= v->bound;
}

/* The verdict on the product, by all that is in the buffers.  Of many elements one can be further
 * off than the sample's: before that fails, more samples of the truth are taken. */
static void decide(const struct checked *c, const struct buffers *b, int n, const struct totals *t,
                   struct verdict *v)
{
    struct bounds *bounds = c->e->bounds;

    v->judged = t->judged;
    v->elements = c->n.G * c->n.M * c->n.N;
    const double off = sqrt(t->off * SEGMENT) / c->weights;
    v->norm = t->squares > 0 ? off / sqrt(t->squares) : off;
    double size = fmax(t->size, c->e->size);
    for (int i = 0; i < n; i++)
        if (b->suspect[i].off >= 0)
            look_at(c, &b->suspect[i], &size, v);
    const struct gain gain = gain_of(t);
    const double most = v->error / (size > 0 ? size : 1);
    do
        decide_by(v, &X_OR_G(*bounds, c->arg, c->grad), most, gain);
    while (!v->pass && bounds_sample_more(bounds, 0));
    v->unjudged = v->pass && X_OR_G(*bounds, c->arg, c->grad).of[BY_MAX] >= 1;
}

int check_product(const struct tensors *got, const struct call *f, struct sampled *s,
                  const struct product *p, const struct expected *e, struct verdicts *list)
{
    struct checked c = {.f = f, .p = p, .e = e};
    struct buffers b = {NULL, NULL, NULL, NULL};
    struct totals t = {.n = 0};
    int n = 0, failed = begin(&c, got, s) || buffers_new(&b, &c, s);

    for (int64_t g = 0; !failed && g < c.n.G; g++) {
        compare(&c, g, b.r, b.U + g * c.n_parts * c.n.M, b.off, &t);
        n = suspects_add(&c, g, b.off, b.suspect, n);
    }
    struct verdict *v =
        failed ? NULL : verdict_add(list, "products", p->result, f->backend, f->kernel);
    if (v)
        decide(&c, &b, n, &t, v);
    buffers_free(&b, &c, s);
    free(c.slopes);
    return v ? 0 : -1;
}
