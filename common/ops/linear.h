/* linear: y = x W^T;  x [M,C], W [D,C], y [M,D]. */
struct linear {
    void *x, *W, *y;
};
