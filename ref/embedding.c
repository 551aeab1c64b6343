/* embedding: y[r,:] = E[token[r],:]; dE[v,:] = the sum of dy[r,:] over the rows r of token v. */
#include "common/ops/embedding.h"
#include "ref/ref.h"

static int is_token(int64_t v, int64_t V)
{
    return v >= 0 && v < V;
}

static int forward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const int64_t R = DIM(f, 'R'), V = DIM(f, 'V'), D = DIM(f, 'D'), *token = a->token;
    const num *E = a->E;
    num *y = a->y;

    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++)
        for (int64_t d = 0; d < D; d++)
            y[r * D + d] = is_token(token[r], V) ? E[token[r] * D + d] : store(NAN);
    return 0;
}

/* The rows of each token, in ascending order: those of v are row[end[v - 1] ... end[v] - 1], those of
 * token 0 from row[0] on. */
static void sort_rows(const int64_t *token, int64_t R, int64_t V, int64_t *end, int64_t *row)
{
    int64_t before = 0;

    memset(end, 0, V * sizeof *end);
    for (int64_t r = 0; r < R; r++)
        if (is_token(token[r], V))
            end[token[r]]++;
    for (int64_t v = 0; v < V; v++) {
        const int64_t n = end[v];
        end[v] = before;
        before += n;
    }
    for (int64_t r = 0; r < R; r++)
        if (is_token(token[r], V))
            row[end[token[r]]++] = r;
}

/* The sum of a column of dy over n rows, by groups; with noise in any other order, as composed operators
 * have it: one row after the other. */
static real sum(const num *dy, int64_t D, const int64_t *row, int64_t n)
{
    const int64_t K = REF(noise).order == AS_BUILT ? EMBEDDING_GROUP : n;
    real total = 0;

    for (int64_t first = 0; first < n; first += K) {
        const int64_t rows = n - first < K ? n - first : K;
        real group = 0;
        FOR_SUM (i, rows)
            add_to(group, load(dy[row[first + i] * D]));
        add_to(total, group);
    }
    return total;
}

static int backward(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding), *g = GRADS(f, embedding);
    const int64_t R = DIM(f, 'R'), V = DIM(f, 'V'), D = DIM(f, 'D');
    int64_t *end = f->work, *row = end + V;
    const num *dy = g->y;
    real *dE = g->E;

    sort_rows(a->token, R, V, end, row);
    #pragma omp parallel for collapse(2) schedule(static, 64)
    for (int64_t v = 0; v < V; v++)
        for (int64_t d = 0; d < D; d++) {
            const int64_t begin = v ? end[v - 1] : 0;
            dE[v * D + d] = sum(dy + d, D, row + begin, end[v] - begin);
        }
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? sizeof(int64_t) * (DIM(f, 'V') + DIM(f, 'R')) : 0;
}

REF_KERNEL(embedding, "plain",
           "a row's tokens sorted by counting, one element of dE after the other", forward,
           backward, .work = work);
