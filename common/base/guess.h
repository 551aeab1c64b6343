/* guess.h - the suggestion for an unknown word: the nearest known one, if one is near. */
#ifndef GUESS_H
#define GUESS_H

struct guess {
    const char *word, *best;
    int distance;
};
void guess_among(struct guess *g, const char *candidate);

#endif
