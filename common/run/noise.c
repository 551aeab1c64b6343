/* The noise of two medians, from their spreads (noise.h). */
#include <math.h>

#include "common/run/noise.h"

static double three_deviations(double spread)
{
    return 3 * 1.4826 * spread;
}

double times_noise(double one_spread, double other_spread)
{
    return hypot(three_deviations(one_spread), three_deviations(other_spread));
}
