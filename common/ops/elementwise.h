/* silu, relu, swiglu, add: element by element, all tensors [M,D].
 *
 *     silu      y = x / (1 + exp(-x))
 *     relu      y = max(x, 0), whose slope at 0 is 0; NaN stays, with slope 1, as in PyTorch
 *     swiglu    y = silu(a) b
 *     add       y = a + b, rounded once; da = db = dy
 */
struct unary { /* silu, relu */
    void *x, *y;
};
enum { SWIGLU_AT_SILU }; /* sites */
struct swiglu {
    void *a, *b, *y;
};
struct add {
    void *a, *b, *y;
};
