/* Distances of a result from the correct values, of all elements and of slices (distance.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/judge/distance.h"

const char *const distance_names[] = {"max", "rms", "gain", "offset", "slice", "slice gain"};

int same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* ---- slices ---- */

struct slices slices_of(const struct call *f, int arg)
{
    const char *shape = op_shape(f, arg);
    struct slices s = {.n_axes = 0};
    int64_t n = op_count(f, arg);

    for (int i = 0; shape[i]; i++)
        if (DIM(f, shape[i]) > 1) {
            s.axis[s.n_axes] = i;
            s.length[s.n_axes++] = DIM(f, shape[i]);
        }
    s.columns = s.n_axes > 1 ? s.length[s.n_axes - 1] : n;
    s.rows = s.columns ? n / s.columns : 0;
    if (s.n_axes < 2)
        return s;
    s.n = s.rows + s.columns;
    for (int i = 0; s.n_axes > 2 && i < s.n_axes - 1; i++)
        s.n += s.length[i];
    return s;
}

/* The distance of two neighbours on axis i of those that are longer than 1. */
static int64_t stride_of(const struct slices *s, int i)
{
    int64_t stride = 1;
    for (int j = i + 1; j < s->n_axes; j++)
        stride *= s->length[j];
    return stride;
}

int slices_kinds(const struct slices *s, int64_t end[MAX_RANK + 1])
{
    int n = 0;

    if (!s->n)
        return 0;
    end[n++] = s->rows;
    for (int i = 0; s->n_axes > 2 && i < s->n_axes - 1; i++, n++)
        end[n] = end[n - 1] + s->length[i];
    end[n] = s->n;
    return n + 1;
}

int64_t slice_at(const struct slices *s, int64_t i, unsigned *fixed)
{
    *fixed = 0;
    if (i < s->rows) {
        for (int a = 0; a < s->n_axes - 1; a++)
            *fixed |= 1u << s->axis[a];
        return i * s->columns;
    }
    i -= s->rows;
    for (int a = s->n_axes > 2 ? 0 : s->n_axes - 1; a < s->n_axes; a++) {
        *fixed = 1u << s->axis[a];
        if (i < s->length[a])
            return i * stride_of(s, a);
        i -= s->length[a];
    }
    return 0;
}

/* ---- sums ---- */

/* Of e e, e b and b b; and how many elements are left out, since b is not finite. */
enum { EE, EB, BB, LEFT_OUT, N_SUMS };

/* A part of the rows and of the columns. */
struct tile {
    const double *a, *b; /* of the whole */
    int64_t ld, row, n_rows, column, n_columns;
    double scale;      /* of e and b: the largest b is about 1 */
    double *of_row;    /* [n_rows][N_SUMS] */
    double *of_column; /* [N_SUMS][n_columns] */
    double worst, e;   /* the largest |e|; the sum */
    double wanted;     /* the sum of b */
    int64_t at;
    int infinitely;
};

static const double LEAST = 0x1p-126; /* the smallest normal float */

static int all_finite(const double *a, const double *b, int64_t n)
{
    int bad = 0;
    #pragma omp simd reduction(| : bad)
    for (int64_t j = 0; j < n; j++)
        bad |= !(fabs(a[j] - b[j]) < INFINITY);
    return !bad;
}

/* Row i of the tile, all of which is finite. */
static double add_finite(struct tile *t, int64_t i)
{
    const int64_t first = (t->row + i) * t->ld + t->column, n = t->n_columns;
    const double *a = t->a + first, *b = t->b + first, scale = t->scale;
    double *cee = t->of_column, *ceb = cee + n, *cbb = ceb + n;
    double ee = 0, eb = 0, bb = 0, sum = 0, wanted = 0, most = 0;

    #pragma omp simd reduction(+ : ee, eb, bb, sum, wanted) reduction(max : most)
    for (int64_t j = 0; j < n; j++) {
        const double e = a[j] - b[j], x = fabs(e) > LEAST ? e * scale : 0, y = b[j] * scale;
        ee += x * x;
        eb += x * y;
        bb += y * y;
        sum += x;
        wanted += y;
        most = fabs(x) > most ? fabs(x) : most;
        cee[j] += x * x;
        ceb[j] += x * y;
        cbb[j] += y * y;
    }
    double *row = t->of_row + i * N_SUMS;
    row[EE] = ee;
    row[EB] = eb;
    row[BB] = bb;
    t->e += sum;
    t->wanted += wanted;
    return most;
}

/* The same where values may be NaN or infinite. */
static double add_any(struct tile *t, int64_t i)
{
    const int64_t first = (t->row + i) * t->ld + t->column, n = t->n_columns;
    double *row = t->of_row + i * N_SUMS, most = 0;

    for (int64_t j = 0; j < n; j++) {
        const double a = t->a[first + j], b = t->b[first + j], e = a - b;
        const int wrong = isfinite(b) ? !isfinite(e) : !same_value(a, b),
                  counts = isfinite(b) && !wrong;
        const double x = counts && fabs(e) > LEAST ? e * t->scale : 0,
                     y = counts ? b * t->scale : 0;
        const double sums[N_SUMS] = {wrong ? INFINITY : x * x, x * y, y * y, !isfinite(b)};
        if (wrong && !t->infinitely)
            t->at = first + j;
        t->infinitely |= wrong;
        for (int k = 0; k < N_SUMS; k++) {
            row[k] += sums[k];
            t->of_column[k * n + j] += sums[k];
        }
        t->e += x;
        t->wanted += y;
        most = fmax(most, fabs(x));
    }
    return most;
}

static void tile_sum(struct tile *t)
{
    for (int64_t i = 0; i < t->n_rows; i++) {
        const int64_t first = (t->row + i) * t->ld + t->column;
        const int finite = all_finite(t->a + first, t->b + first, t->n_columns);
        const double most = finite ? add_finite(t, i) : add_any(t, i);
        if (!(most > t->worst))
            continue;
        t->worst = most;
        for (int64_t j = 0; !t->infinitely && j < t->n_columns; j++)
            if (fabs((t->a[first + j] - t->b[first + j]) * t->scale) == most) {
                t->at = first + j;
                break;
            }
    }
}

/* ---- all tiles ---- */

/* All tiles of a tensor have one size, so that the sums do not depend on the number of threads. */
struct grid {
    int64_t rows, columns, height, width, high, wide;
    struct tile *tile; /* [high][wide] */
    double *sums;      /* theirs */
};

enum { MOST_COLUMNS = 4096, ELEMENTS = 1 << 16 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int grid_new(struct grid *g, const double *a, const double *b, double scale)
{
    g->width = least(g->columns, g->rows < ELEMENTS / MOST_COLUMNS ? ELEMENTS : MOST_COLUMNS);
    g->height = g->width < ELEMENTS ? ELEMENTS / (g->width ? g->width : 1) : 1;
    g->high = (g->rows + g->height - 1) / g->height;
    g->wide = g->width ? (g->columns + g->width - 1) / g->width : 0;
    const int64_t each = least(g->rows, g->height) + g->width;
    g->tile = calloc(g->high * g->wide + 1, sizeof *g->tile);
    g->sums = calloc(g->high * g->wide * each * N_SUMS + 1, sizeof *g->sums);
    if (!g->tile || !g->sums)
        return err_set("no memory to compare a tensor");
    for (int64_t i = 0; i < g->high; i++)
        for (int64_t j = 0; j < g->wide; j++) {
            double *sums = g->sums + (i * g->wide + j) * each * N_SUMS;
            g->tile[i * g->wide + j] =
                (struct tile){.a = a,
                              .b = b,
                              .ld = g->columns,
                              .row = i * g->height,
                              .n_rows = least(g->height, g->rows - i * g->height),
                              .column = j * g->width,
                              .n_columns = least(g->width, g->columns - j * g->width),
                              .scale = scale,
                              .of_row = sums,
                              .of_column = sums + least(g->rows, g->height) * N_SUMS};
        }
    return 0;
}

static void grid_free(struct grid *g)
{
    free(g->tile);
    free(g->sums);
}

/* The sums of row r, of column c. */
static void row_sums(const struct grid *g, int64_t r, double to[N_SUMS])
{
    memset(to, 0, N_SUMS * sizeof *to);
    for (int64_t j = 0; j < g->wide; j++) {
        const struct tile *t = &g->tile[r / g->height * g->wide + j];
        for (int k = 0; k < N_SUMS; k++)
            to[k] += t->of_row[r % g->height * N_SUMS + k];
    }
}

static void column_sums(const struct grid *g, int64_t c, double to[N_SUMS])
{
    memset(to, 0, N_SUMS * sizeof *to);
    for (int64_t i = 0; i < g->high; i++) {
        const struct tile *t = &g->tile[i * g->wide + c / g->width];
        for (int k = 0; k < N_SUMS; k++)
            to[k] += t->of_column[k * t->n_columns + c % g->width];
    }
}

/* The largest |b|, of those that are finite, and a power of two that makes it about 1: squares then
 * neither overflow nor vanish. */
struct size {
    double most, scale;
};

static struct size size_of(const double *b, int64_t n)
{
    double most = 0;
    int exponent = 0;

    #pragma omp parallel for simd reduction(max : most)
    for (int64_t i = 0; i < n; i++)
        most = fabs(b[i]) < INFINITY && fabs(b[i]) > most ? fabs(b[i]) : most;
    frexp(most, &exponent);
    return (struct size){most, ldexp(1, exponent < -1000 ? 1000 : -exponent)};
}

/* ---- measures ---- */

static double or_infinite(double x)
{
    return isnan(x) ? INFINITY : x;
}

/* From the sums of `n` elements, which are scaled. */
static struct slice slice_from(const double s[N_SUMS], int64_t n, double scale)
{
    const double m = (double)n - s[LEFT_OUT], infinite = isinf(s[EE]);
    struct slice one = {.n = (int64_t)m};

    if (!(m > 0) || infinite)
        return infinite ? (struct slice){INFINITY, INFINITY, 0, one.n} : one;
    one.off = sqrt(s[EE] / m) / scale;
    one.gain = s[BB] > 0 ? or_infinite(fabs(s[EB]) / sqrt(m * s[BB])) / scale : 0;
    one.size = sqrt(s[BB] / m) / scale;
    return one;
}

/* The slices of indices of axes, from those of their rows. */
static void axis_slices(struct distances *d, const double *of_rows, double *sums, double scale)
{
    const struct slices *s = &d->slices;
    struct slice *to = d->slice + s->rows;

    for (int a = 0; s->n_axes > 2 && a < s->n_axes - 1; a++) {
        int64_t stride = 1;
        for (int j = a + 1; j < s->n_axes - 1; j++)
            stride *= s->length[j];
        memset(sums, 0, s->length[a] * N_SUMS * sizeof *sums);
        for (int64_t r = 0; r < s->rows; r++)
            for (int k = 0; k < N_SUMS; k++)
                sums[r / stride % s->length[a] * N_SUMS + k] += of_rows[r * N_SUMS + k];
        for (int64_t i = 0; i < s->length[a]; i++)
            *to++ = slice_from(sums + i * N_SUMS, s->rows / s->length[a] * s->columns, scale);
    }
}

/* From the tiles, and the sums s of all elements. */
static void whole_from(struct distances *d, const struct grid *g, const double s[N_SUMS],
                       const struct size *b)
{
    const double m = (double)(g->rows * g->columns) - s[LEFT_OUT];
    double worst = 0, e = 0, wanted = 0;
    int infinitely = 0;

    for (int64_t i = 0; i < g->high * g->wide; i++) {
        const struct tile *t = &g->tile[i];
        if (!infinitely && (t->infinitely || t->worst > worst))
            d->worst = t->at;
        infinitely |= t->infinitely;
        worst = fmax(worst, t->worst);
        e += t->e;
        wanted += t->wanted;
    }
    d->want.n = (int64_t)m;
    d->want.most = b->most;
    d->want.rms = m > 0 ? sqrt(s[BB] / m) / b->scale : 0;
    d->want.mean = m > 0 ? wanted / m / b->scale : 0;
    const double size = s[BB] > 0 ? s[BB] : b->scale * b->scale;
    const double of[] = {worst / (b->most > 0 ? b->most * b->scale : b->scale), sqrt(s[EE] / size),
                         fabs(s[EB]) / size, fabs(e) / sqrt(m * size)};
    for (int k = 0; k < OF_ALL; k++)
        d->whole.of[k] = infinitely ? INFINITY : of[k] > 0 || isnan(of[k]) ? or_infinite(of[k]) : 0;
}

/* All measures, from the sums of the tiles. */
static int measures_from(struct distances *d, const struct grid *g, const struct size *b)
{
    const struct slices *s = &d->slices;
    int64_t most = 1;
    double all[N_SUMS] = {0}, one[N_SUMS];

    for (int a = 0; a < s->n_axes; a++)
        most = s->length[a] > most ? s->length[a] : most;
    double *sums = s->n ? calloc((s->rows + most) * N_SUMS, sizeof *sums) : NULL;
    d->slice = s->n ? calloc(s->n, sizeof *d->slice) : NULL;
    if (s->n && (!sums || !d->slice)) {
        free(sums);
        return err_set("no memory for the slices of a tensor");
    }
    for (int64_t r = 0; r < g->rows; r++) {
        double *row = sums ? sums + r * N_SUMS : one;
        row_sums(g, r, row);
        for (int k = 0; k < N_SUMS; k++)
            all[k] += row[k];
        if (sums)
            d->slice[r] = slice_from(row, s->columns, b->scale);
    }
    whole_from(d, g, all, b);
    if (sums)
        axis_slices(d, sums, sums + s->rows * N_SUMS, b->scale);
    for (int64_t c = 0; sums && c < s->columns; c++) {
        column_sums(g, c, one);
        d->slice[s->n - s->columns + c] = slice_from(one, s->rows, b->scale);
    }
    free(sums);
    return 0;
}

static int find(struct distances *d, const double *a, const double *b)
{
    struct grid g = {.rows = d->slices.rows, .columns = d->slices.columns};
    const struct size size = size_of(b, g.rows * g.columns);
    int e = grid_new(&g, a, b, size.scale);

    #pragma omp parallel for if (!e && g.high * g.wide > 1)
    for (int64_t i = 0; i < (e ? 0 : g.high * g.wide); i++)
        tile_sum(&g.tile[i]);
    e = e || measures_from(d, &g, &size);
    grid_free(&g);
    return e ? -1 : 0;
}

int distances_find(struct distances *d, const struct call *f, int arg, const double *a,
                   const double *b)
{
    *d = (struct distances){.slices = slices_of(f, arg)};
    return find(d, a, b);
}

void distances_free(struct distances *d)
{
    free(d->slice);
    d->slice = NULL;
}

struct distance distance(const double *a, const double *b, int64_t n)
{
    struct distances d = {.slices = {.rows = 1, .columns = n}};

    if (n && find(&d, a, b))
        return (struct distance){INFINITY, INFINITY, 0};
    return (struct distance){d.whole.of[BY_MAX], d.whole.of[BY_RMS], d.worst};
}

struct distance bytes_distance(const unsigned char *a, const unsigned char *b, int64_t n)
{
    int64_t differ = 0, first = n;

    #pragma omp parallel for reduction(+ : differ) reduction(min : first)
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            differ++;
            first = i < first ? i : first;
        }
    const double share = differ ? (double)differ / (double)n : 0;
    return (struct distance){share, share, differ ? first : 0};
}
