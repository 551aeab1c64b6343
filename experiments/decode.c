/* The time of a token by the bytes of its weights (decode.h). */
#include "config.h"

#include <stdio.h>

#include "common/base/err.h"
#include "common/base/number.h"
#include "experiments/decode.h"

int decode_command(const char *parameters, const char *bits, const char *rate)
{
    double n, b, gb;
    char count[NUMBER_TEXT], size[NUMBER_TEXT];

    if (number_real(parameters, 1, 1e18, &n))
        return err_at("--decode %s: parameters", parameters);
    if (number_real(bits, 0.01, 64, &b))
        return err_at("--decode: bits of a parameter: %s", bits);
    if (number_real(rate, 1e-3, 1e9, &gb))
        return err_at("--decode: GB per second: %s", rate);
    const double bytes = n * b / 8, seconds = bytes / (gb * 1e9);
    printf("%s parameters of %g bits: %s; read at %g GB/s in %.3g ms, %.4g tokens per second\n",
           number_count(n, count), b, number_bytes(bytes, size), gb, 1e3 * seconds, 1 / seconds);
    return 0;
}
