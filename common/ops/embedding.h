/* embedding: rows of a table E [V,D], by their tokens,
 *
 *     y[r,:]  = E[token[r],:]
 *     dE[v,:] = the sum of dy[r,:] over the rows r whose token is v, and 0 where there is none
 *
 * A token outside 0 ... V - 1 has no row of E: its row of y is NaN, no gradient has its dy, and nothing
 * beside E is read.
 *
 * The sum has a fixed tree, whatever the launch.  The rows whose token is v, in ascending order, are cut
 * into groups of K, the last of which may be shorter; each group is summed in order, and then the groups'
 * sums are added in order.  A chain of additions is so no longer than K + n / K for n rows, and the same
 * inputs give the same bits. */
struct embedding {
    void *token; /* [R] */
    void *E;     /* [V,D] */
    void *y;     /* [R,D] */
};

enum { EMBEDDING_GROUP = 64 }; /* K */

enum { EMBEDDING_ROWS, EMBEDDING_VOCABULARY, EMBEDDING_WIDTH, EMBEDDING_TOKENS, EMBEDDING_OUTSIDE };
