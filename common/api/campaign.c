/* ablate.h's functions for the cases by which a function is judged that words name. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/run/campaign.h"

struct abl_campaign {
    struct campaign c;
    struct trial t; /* whose words were asked for last */
};

static abl_campaign *campaign_of(const char *words)
{
    abl_campaign *c = calloc(1, sizeof *c);

    if (!c)
        err_set("no memory for a campaign");
    else if (words_parse(words, 0, &c->t) || campaign_new(&c->c, words, &c->t)) {
        abl_campaign_free(c);
        c = NULL;
    }
    return c;
}

abl_campaign *abl_campaign_new(const char *words)
{
    if (IS_NULL(words, "string of words") || lock_library())
        return NULL;
    abl_campaign *c = campaign_of(words);
    unlock_library();
    return c;
}

void abl_campaign_free(abl_campaign *campaign)
{
    if (campaign)
        campaign_free(&campaign->c);
    free(campaign);
}

int64_t abl_campaign_listed(const abl_campaign *campaign)
{
    return IS_NULL(campaign, "campaign") ? -1 : campaign->c.n;
}

int abl_campaign_is_open(const abl_campaign *campaign)
{
    return IS_NULL(campaign, "campaign") ? -1 : campaign->c.open != 0;
}

const char *abl_campaign_words(abl_campaign *campaign, int64_t i)
{
    if (IS_NULL(campaign, "campaign"))
        return NULL;
    if (i < 0)
        return err_null("abl_campaign_words: there is no case %lld", (long long)i);
    if (lock_library())
        return NULL;
    const int e = campaign_trial(&campaign->c, i, &campaign->t);
    unlock_library();
    return e ? NULL : campaign->t.text;
}

int abl_campaign_smaller(abl_campaign *campaign, const char *words, int k, char *to, int64_t size)
{
    if (IS_NULL(campaign, "campaign") || IS_NULL(words, "string of words") ||
        IS_NULL(to, "destination"))
        return -1;
    struct trial of;
    if (lock_library())
        return -1;
    const int e = words_parse(words, 0, &of);
    const int same = !e && op_same(of.call.op, campaign->c.asked.call.op);
    const int made = same ? campaign_smaller(&campaign->c, &of, k, &campaign->t) : 0;
    unlock_library();
    if (e || !made)
        return e      ? -1
               : same ? 1
                      : err_set("abl_campaign_smaller: words of another operation: %s", words);
    if (size <= (int64_t)strlen(campaign->t.text))
        return err_set("%lld bytes are too few for the words of a case", (long long)size);
    strcpy(to, campaign->t.text);
    return 0;
}
