/* The known word that is nearest to an unknown one (guess.h). */
#include "config.h"

#include <string.h>

#include "common/base/guess.h"

enum { LONGEST = 64 }; /* words are shorter */

/* Levenshtein's: how many letters to put in, take out or change. */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(b), row[LONGEST];

    if (n >= LONGEST || strlen(a) >= LONGEST)
        return LONGEST;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            row[j] = row[j] + 1 < change ? row[j] + 1 : change;
            row[j] = row[j - 1] + 1 < row[j] ? row[j - 1] + 1 : row[j];
        }
    }
    return row[n];
}

void guess_among(struct guess *g, const char *candidate)
{
    size_t n = strlen(g->word);
    int d = distance(g->word, candidate), limit = n < 2 ? 0 : n < 4 ? 1 : 2;
    if (d <= limit && (!g->best || d < g->distance)) {
        g->best = candidate;
        g->distance = d;
    }
}
