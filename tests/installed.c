/* A program outside the project: it uses the installed header and library
 * alone. */
#include <ablate.h>
#include <stdio.h>

int main(void)
{
    abl_case *c = abl_case_new("e74_cell state=lowrank steps=20 batch=2 n_state=8 rank=3 seed=5");
    abl_verdicts *v = c ? abl_judge(c, "ref32", NULL, ABL_PARITY | ABL_PROPERTIES) : NULL;
    struct abl_verdict one;

    if (!v) {
        printf("%s\n", abl_error());
        return 1;
    }
    for (int i = 0; abl_verdict(v, i, &one) == 0; i++)
        if (!one.pass)
            printf("%s of %s off by %g\n", one.tensor, one.backend, one.error);
    printf("%s: %d checks, %d failed\n", abl_text(c), abl_count(v), abl_failed(v));
    int failed = abl_failed(v) || abl_count(v) == 0;
    abl_verdicts_free(v);
    abl_case_free(c);
    return failed;
}
