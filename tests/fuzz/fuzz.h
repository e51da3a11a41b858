/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h - helpers of all fuzz targets
 *
 * A target is one function, LLVMFuzzerTestOneInput().  It decodes an input into
 * messages of an untrusted peer, gives them to the real code, and ends the
 * process when a law is broken.  It begins every input in the same state, so
 * that an input alone is a reproducer.
 *
 * engine.c is the main() of a build without a fuzzer: it replays corpora and
 * mutates their inputs by itself.  With -DFUZZ_LIB it is empty, and libFuzzer
 * or AFL++'s driver brings main().  A target that knows the form of its inputs
 * describes it in a struct fuzz_own.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include <kvmm/types.h>

/* Longest input that a target reads, unless its struct fuzz_own says otherwise. */
#define FUZZ_MAX	4096u
/* Longest input of any target. */
#define FUZZ_ROOM	65536u

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

/* A law that no input may break. */
#define FUZZ_LAW(cond, ...)						\
do {									\
	if (__builtin_expect(!(cond), 0))				\
		fuzz_broken(__FILE__, __LINE__, #cond, __VA_ARGS__);	\
} while (0)

void __noreturn __printf(4, 5)
fuzz_broken(const char *file, int line, const char *cond, const char *fmt, ...);

/**
 * struct fuzz - the rest of an input
 *
 * Bytes past its end read as zero, so that a short input means something.
 */
struct fuzz {
	const u8	*p;
	size_t		left;
};

static inline u8 fuzz_u8(struct fuzz *f)
{
	if (!f->left)
		return 0;
	f->left--;
	return *f->p++;
}

static inline u64 fuzz_uint(struct fuzz *f, u32 bytes)
{
	u64 v = 0;
	u32 i;

	for (i = 0; i < bytes; i++)
		v |= (u64)fuzz_u8(f) << (8 * i);
	return v;
}

static inline u16 fuzz_u16(struct fuzz *f)
{
	return (u16)fuzz_uint(f, 2);
}

static inline u32 fuzz_u32(struct fuzz *f)
{
	return (u32)fuzz_uint(f, 4);
}

static inline u64 fuzz_u64(struct fuzz *f)
{
	return fuzz_uint(f, 8);
}

/* A number below @n, which is at most 256, from one byte. */
static inline u32 fuzz_of(struct fuzz *f, u32 n)
{
	return fuzz_u8(f) % n;
}

static inline void fuzz_bytes(struct fuzz *f, void *to, size_t n)
{
	u8 *t = to;

	while (n--)
		*t++ = fuzz_u8(f);
}

/* A number: mostly a small one, else one near a limit of arithmetic. */
u32 fuzz_number(struct fuzz *f);

/* Change some bytes of @to, if the input says so. */
void fuzz_scar(struct fuzz *f, void *to, u32 bytes);

/* Open descriptors of the process from @from on; targets must close theirs. */
u32 fuzz_count_fds(int from);

/**
 * struct fuzz_own - properties of a target, for engine.c; optional
 * @max: bytes of an input at most, up to FUZZ_ROOM; 0 for FUZZ_MAX
 * @pack: bytes of the inputs of its pack at most; 0 for 32 KiB
 * @words: pieces of inputs, for the fuzzers' dictionaries
 * @nr_words: how many
 * @begin: writes an input to mutate to @buf, which has room for @max, and
 *	   returns its length; NULL: an input that was read
 * @mutate: changes an input of @len bytes in one place and returns its new
 *	    length; NULL: bytes change
 * @changes: calls of @mutate for an input at most; 0 for 1 to 8
 * @taken: inputs that were accepted, to be printed at the end
 */
struct fuzz_own {
	u32			max;
	u32			pack;
	const char * const	*words;
	u32			nr_words;
	size_t			(*begin)(u8 *buf, size_t max);
	size_t			(*mutate)(u8 *buf, size_t len, size_t max);
	u32			changes;
	const u64		*taken;
};

extern const struct fuzz_own fuzz_own __attribute__((weak));

/* A random number below @n, from the seed; 0 if @n is 0. */
u32 fuzz_draw(u32 n);

/* An input that was read, unchanged; *@len is 0 when there are none. */
const u8 *fuzz_input(size_t *len);

/* Replace @cut bytes at @at by @n bytes, unless the result exceeds @max. */
size_t fuzz_put(u8 *buf, size_t len, size_t max, size_t at, size_t cut,
		const void *p, size_t n);

#endif /* TESTS_FUZZ_H */
