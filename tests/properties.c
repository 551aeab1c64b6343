/* The references themselves: each precision against the oracle, and every
 * property that holds whatever an operation computes. */
#include "config.h"

#include <stdio.h>

#include "tests/suite.h"

int main(void)
{
    judge_backend(&ref64);
    judge_backend(&ref32);
    judge_backend(&ref16);
    return done();
}
