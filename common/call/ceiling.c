/* The names of the ceilings (ceiling.h). */
#include "common/call/ceiling.h"

#define CEILING_NAME(with, ID, name) #name,
const char *const ceiling_names[N_CEILINGS] = {CEILINGS(CEILING_NAME, )};
