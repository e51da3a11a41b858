// SPDX-License-Identifier: Apache-2.0
/*
 * page.c - the page of metrics, read seldom and sent often
 *
 * Peers may ask as often as they like, and each page costs the daemon a copy of
 * the core between two requests of its clients.  So the page is read at most every
 * PAGE_MS, and later peers are sent the same bytes.  A page lives until the
 * slowest of its peers has read it.
 *
 * The page is read with the rights of the daemon's owner: it is the page of the
 * node, with the names of all tenants.  The address that the operator chose
 * decides which peers may see it (security.md).
 *
 * Context: the thread of http.c.
 */
#include <stdlib.h>

#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define PAGE_MS		100

void pages_put(struct pages *ps, struct page *page)
{
	if (!page || --page->users)
		return;
	ps->bytes -= page->text.size;
	seq_free(&page->text);
	free(page);
}

static int page_read(struct pages *ps, struct page **page)
{
	struct page *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	seq_init(&p->text, KV_VIEW_TEXT_MAX);
	err = pf_ask(ps->pf, (struct pf_user){ .uid = ps->pf->owner },
		     "cat metrics", &p->text);
	p->users = 1;
	ps->bytes += p->text.size;
	if (err)
		pages_put(ps, p);
	else
		*page = p;
	return err;
}

int pages_get(struct pages *ps, u64 now, struct page **page)
{
	int err;

	if (!ps->last || now - ps->since >= PAGE_MS) {
		pages_put(ps, ps->last);
		ps->last = NULL;
		err = page_read(ps, &ps->last);
		if (err)
			return err;
		ps->since = now;
	}
	ps->last->users++;
	*page = ps->last;
	return 0;
}
