/* silu_gate: y = x z / (1 + exp(-z)), element by element, all [M,D]. */
struct silu_gate {
    void *x, *z, *y;
};
