// SPDX-License-Identifier: Apache-2.0
/*
 * prompts.c - prompts for the integration tests
 */
#include <stdio.h>

#include <check.h>

#include "tests/integration/prompts.h"

static const char shared_prefix[] =
	"It was a cold morning of the early spring, and we sat after breakfast "
	"on either side of a cheery fire in the old room at Baker Street. A "
	"thick fog rolled down between the lines of houses, and the opposing "
	"windows loomed like dark, shapeless blurs through the heavy yellow "
	"wreaths. Our gas was lit and shone on the white cloth and glimmer of "
	"china and metal, for the table had not been cleared yet. Sherlock "
	"Holmes had been silent all the morning, dipping continuously into "
	"the advertisement columns of a succession of papers, until at last";

static const char * const openings[] = {
	"And it came to pass in those days, that the king of the north",
	"\"Curious!\" said Alice, and she looked round the garden for",
	"The Wizard looked at Dorothy and shook his head, because the road",
	"Mr. Speaker, Members of Congress, my fellow Americans: the state of",
	"The kitten walked slowly across the road, and the little girl who",
	"In the beginning there was a house beside the sea, and in the house",
	"There were seven letters upon the desk, and every one of them had",
	"When the morning came the people gathered before the gate, and said",
};

static const char * const middles[] = {
	"was a man of few words, who had seen the war and come home again",
	"could not be found in any of the places where they had looked",
	"had promised to return before the winter, and had not returned",
	"seemed to know more of the matter than anybody had told him",
};

static void prompt_text(u32 n, const char *tag, char *out, size_t size)
{
	const char *open = openings[n % 8];
	const char *mid = middles[(n / 8) % 4];

	if (n % 2)
		snprintf(out, size, "%s%s%s number %u %s", tag, *tag ? " " : "",
			 shared_prefix, n, mid);
	else
		snprintf(out, size, "%s%s%u. %s %s, and %s, and", tag,
			 *tag ? " " : "", n, open, mid, middles[(n + 1) % 4]);
}

void prompts_write(const char *path, u32 first, u32 nr, const char *tag)
{
	char text[PROMPT_MAX];
	FILE *f = fopen(path, "w");
	u32 i;

	ck_assert_ptr_nonnull(f);
	for (i = first; i < first + nr; i++) {
		prompt_text(i, tag, text, sizeof(text));
		fprintf(f, "%s\n", text);
	}
	ck_assert_int_eq(fclose(f), 0);
}
