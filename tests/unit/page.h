/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - pages of Documentation/, which tests compare with the code
 *
 * Tables there repeat lists of the code; a test makes each row from the list
 * and looks for it.
 */
#ifndef TESTS_UNIT_PAGE_H
#define TESTS_UNIT_PAGE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

#define PAGE_MAX	(1u << 20)

/* The whole text of Documentation/@name; the caller frees it. */
static inline char *page_read(const char *name)
{
	const char *top = getenv("KVMM_TOP");
	char path[512], *text = calloc(1, PAGE_MAX + 1);
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/Documentation/%s", top ? top : ".",
		 name);
	f = fopen(path, "re");
	ck_assert_msg(f && text, "%s: cannot be read", path);
	n = fread(text, 1, PAGE_MAX, f);
	ck_assert_msg(n && n < PAGE_MAX, "%s: %zu bytes", path, n);
	fclose(f);
	return text;
}

/* How many lines of @page begin with @head? */
static inline u32 page_count(const char *page, const char *head)
{
	const char *p = page;
	u32 nr = 0;

	while ((p = strstr(p, head))) {
		nr += p == page || p[-1] == '\n';
		p++;
	}
	return nr;
}

/* @page must have the row of a table unchanged. */
static inline void ck_assert_row(const char *page, const char *name,
				 const char *row)
{
	ck_assert_msg(strstr(page, row) != NULL,
		      "Documentation/%s lacks the row:\n%s", name, row);
}

#endif /* TESTS_UNIT_PAGE_H */
