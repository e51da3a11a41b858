// SPDX-License-Identifier: Apache-2.0
/*
 * progress.c - progress of a long load
 *
 * A line every few seconds, and none for a load that ends before the first line
 * is due.  A service manager gets it too, and gives a load that gets on more
 * time.
 */
#include <stdio.h>

#include <kvmm/clock.h>
#include <kvmm/notify.h>

#include "runtime/cli/cli.h"

#define PROGRESS_NS	2000000000ll

/* A load may go over the weights more than once: to quantize, to pack, to know them again. */
static void progress_tell(void *arg, u64 done, u64 total)
{
	struct progress *p = arg;
	const s64 now = (s64)kv_now_ns();
	char text[512], pass[32] = "";

	if (done < p->done) {
		p->pass++;
		p->begin = p->last;
	}
	p->done = done;
	p->last = now;
	if (now - p->said < PROGRESS_NS || !total)
		return;
	p->said = now;
	if (p->pass)
		snprintf(pass, sizeof(pass), "pass %u: ", p->pass + 1);
	pr_info("%s: %s%.0f %% of %.*f GB of weights, %.2f GB/s", p->dir, pass,
		100.0 * (double)done / (double)total, total < 1000000000 ? 3 : 1,
		(double)total / 1e9,
		(double)done / max((double)(now - p->begin), 1.0));
	snprintf(text, sizeof(text),
		 KV_NOTIFY_MORE "\nSTATUS=loading %s: %.0f %% of %.1f GB", p->dir,
		 100.0 * (double)done / (double)total, (double)total / 1e9);
	(void)kv_notify(text);
}

struct model_progress progress_start(struct progress *p, const char *dir)
{
	*p = (struct progress){ .dir = dir };
	p->begin = p->said = p->last = (s64)kv_now_ns();
	return (struct model_progress){ .fn = progress_tell, .arg = p };
}

void progress_made(const struct model *model)
{
	const struct model_info *i = model_info(model);

	if (i->made_bytes)
		pr_info("%s: %.1f MB of weights became %.1f MB of quantized matrices in %.1f s",
			i->dir, (double)i->made_of / 1e6,
			(double)i->made_bytes / 1e6, (double)i->made_ns / 1e9);
}
