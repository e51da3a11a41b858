/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blind.h - a fuzzer of little wit, for machines without libFuzzer
 *
 * What the targets of the runtime have in common when they are programs of
 * their own: numbers that follow from a seed, and pieces put into an input.
 */
#ifndef TESTS_FUZZ_BLIND_H
#define TESTS_FUZZ_BLIND_H

#include <stdio.h>
#include <stdlib.h>

#include <kvmm/types.h>

static u64 blind_state;

static inline u32 draw(u32 n)
{
	blind_state = blind_state * 6364136223846793005u +
		      1442695040888963407u;
	return (u32)((blind_state >> 33) % n);
}

/**
 * put_piece() - put @n bytes for @cut bytes at @at
 * @most: bytes that there is room for at @buf; what would not fit changes
 *	  nothing
 *
 * Return: the new length.
 */
static inline size_t put_piece(void *buf, size_t len, size_t most, size_t at,
			       size_t cut, const void *p, size_t n)
{
	u8 *b = buf;

	cut = min(cut, len - at);
	if (len - cut + n > most)
		return len;
	memmove(b + at + n, b + at + cut, len - at - cut);
	memcpy(b + at, p, n);
	return len - cut + n;
}

/**
 * blind_begin() - read ROUNDS and SEED
 * @files: least number of files that must follow
 *
 * Return: rounds; a wrong command line ends the program.
 */
static inline u64 blind_begin(int argc, char **argv, const char *name,
			      int files)
{
	if (argc < 3 + files || (!files && argc != 3)) {
		fprintf(stderr, "usage: %s ROUNDS SEED%s\n", name,
			files ? " FILE.." : "");
		exit(2);
	}
	blind_state = strtoull(argv[2], NULL, 10);
	return strtoull(argv[1], NULL, 10);
}

/* blind_read() - at most @most bytes of a file, or the end of the program */
static inline size_t blind_read(const char *path, void *buf, size_t most)
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	n = fread(buf, 1, most, f);
	fclose(f);
	return n;
}

#endif /* TESTS_FUZZ_BLIND_H */
