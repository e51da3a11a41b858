// SPDX-License-Identifier: Apache-2.0
/*
 * engine.c - fuzz targets without a fuzzer
 *
 *	fuzz_X ROUNDS SEED FILE..	replay, then mutate ROUNDS times
 *	fuzz_X --pack FILE DIR		files of a directory in one: the shortest,
 *					pack_bytes() of them
 *	fuzz_X --unpack FILE DIR	the inverse, for the fuzzers
 *	fuzz_X --words FILE		the target's words as their dictionary
 *	fuzz_X --max			bytes of an input at most
 *
 * A FILE is one input, or a pack: PACK_MAGIC, then for each input its length
 * in four bytes, low first, and its bytes.  A mutated input is one or two of the
 * inputs that were read, with a few bytes changed, left out or put in, or it is
 * made by the target (struct fuzz_own): it reaches code close to the corpus, no
 * more.  An input that breaks a law is written to crash-X in the working
 * directory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

void fuzz_broken(const char *file, int line, const char *cond,
		 const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: law broken: %s: ", file, line, cond);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

u32 fuzz_number(struct fuzz *f)
{
	static const u32 fond[] = {
		0, 1, 15, 16, 17, 255, 256, 1023, 1024, 1025, 4095, 4096,
		65535, 65536, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff,
		0x40000000, 0x15555555, 0x08000000, 0x3fffffff,
	};
	u8 b = fuzz_u8(f);

	if (b < 200)
		return b;
	if (b < 200 + ARRAY_SIZE(fond))
		return fond[b - 200];
	return fuzz_u32(f);
}

void fuzz_scar(struct fuzz *f, void *to, u32 bytes)
{
	u8 n = fuzz_u8(f);

	/* Most records must not change, or none would ever be right. */
	for (n = n < 224 ? 0 : n - 223; n && bytes; n--) {
		u32 at = fuzz_u8(f) % bytes;

		((u8 *)to)[at] ^= fuzz_u8(f);
	}
}

u32 fuzz_count_fds(int from)
{
	u32 nr = 0;
	int fd;

	/* The kernel gives the lowest free one: no gap is larger than this. */
	for (fd = from; fd < from + 64; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

#ifndef FUZZ_LIB

#define PACK_MAGIC	"kvmmfuzz"
#define PACK_BYTES	32768u
#define INPUTS_MAX	16384u

struct input {
	u8	*data;
	u32	len;
};

static struct input inputs[INPUTS_MAX];
static u32 nr_inputs;
static u32 nr_packed;		/* inputs up to the end of the last pack */
static const u8 *current;
static size_t current_len;
static u64 rng;

/* ---- properties of the target ---- */

static u32 input_max(void)
{
	return &fuzz_own && fuzz_own.max ? fuzz_own.max : FUZZ_MAX;
}

static u32 pack_bytes(void)
{
	return &fuzz_own && fuzz_own.pack ? fuzz_own.pack : PACK_BYTES;
}

/* ---- files ---- */

static void fail(const char *path)
{
	fprintf(stderr, "%s: %s\n", path, errno ? strerror(errno) :
		"is no pack, or has too many inputs");
	exit(1);
}

static void input_add(const char *path, const u8 *data, u32 len)
{
	struct input *in = &inputs[nr_inputs];

	errno = 0;
	if (nr_inputs == INPUTS_MAX)
		fail(path);
	in->data = malloc(len + 1);
	if (!in->data)
		fail(path);
	memcpy(in->data, data, len);
	in->len = len;
	nr_inputs++;
}

static u8 *file_read(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	u8 *data;

	if (!f || fstat(fileno(f), &st))
		fail(path);
	*len = (size_t)st.st_size;
	data = malloc(*len + 1);
	if (!data || fread(data, 1, *len, f) != *len)
		fail(path);
	fclose(f);
	return data;
}

static void pack_read(const char *path)
{
	size_t len, at = sizeof(PACK_MAGIC) - 1;
	u8 *data = file_read(path, &len);
	u32 n;

	if (len < at || memcmp(data, PACK_MAGIC, at)) {
		input_add(path, data, (u32)min(len, (size_t)input_max()));
		free(data);
		return;
	}
	while (at < len) {
		errno = 0;
		if (len - at < 4)
			fail(path);
		n = data[at] | (u32)data[at + 1] << 8 |
		    (u32)data[at + 2] << 16 | (u32)data[at + 3] << 24;
		at += 4;
		if (n > len - at)
			fail(path);
		input_add(path, data + at, n);
		at += n;
	}
	nr_packed = nr_inputs;
	free(data);
}

static void dir_read(const char *dir)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort), i;
	char path[4096];

	if (n < 0)
		fail(dir);
	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (names[i]->d_name[0] != '.')
			pack_read(path);
		free(names[i]);
	}
	free(names);
}

static int by_length(const void *a, const void *b)
{
	const struct input *x = a, *y = b;

	return (x->len > y->len) - (x->len < y->len);
}

static int pack_write(const char *path)
{
	FILE *f = fopen(path, "we");
	u32 i, all = 0;

	qsort(inputs, nr_inputs, sizeof(inputs[0]), by_length);
	for (i = 0; i < nr_inputs && all + inputs[i].len <= pack_bytes(); i++)
		all += inputs[i].len;
	nr_inputs = i;

	if (!f || fputs(PACK_MAGIC, f) < 0)
		fail(path);
	for (i = 0; i < nr_inputs; i++) {
		u32 n = inputs[i].len;
		u8 head[4] = { (u8)n, (u8)(n >> 8), (u8)(n >> 16),
			       (u8)(n >> 24) };

		if (fwrite(head, 1, 4, f) != 4 ||
		    fwrite(inputs[i].data, 1, n, f) != n)
			fail(path);
	}
	if (fclose(f))
		fail(path);
	printf("%s: %u inputs\n", path, nr_inputs);
	return 0;
}

static int input_write(const char *path, const u8 *data, size_t len)
{
	FILE *f = fopen(path, "we");

	if (!f || fwrite(data, 1, len, f) != len || fclose(f))
		return -EIO;
	return 0;
}

static int pack_unpack(const char *dir)
{
	char path[4096];
	u32 i;

	for (i = 0; i < nr_inputs; i++) {
		snprintf(path, sizeof(path), "%s/%05u", dir, i);
		if (input_write(path, inputs[i].data, inputs[i].len))
			fail(path);
	}
	printf("%s: %u inputs\n", dir, nr_inputs);
	return 0;
}

/* ---- running ---- */

static void crashed(int sig)
{
	char path[64];

	snprintf(path, sizeof(path), "crash-%s", program_invocation_short_name);
	if (!input_write(path, current, current_len))
		fprintf(stderr, "the input is in %s\n", path);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void run(const u8 *data, size_t len)
{
	current = data;
	current_len = len;
	LLVMFuzzerTestOneInput(data, len);
}

u32 fuzz_draw(u32 n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return n ? (u32)((rng >> 33) % n) : 0;
}

/* Most inputs of a pack are refused, files after it are valid: half of each. */
const u8 *fuzz_input(size_t *len)
{
	const u32 from = nr_packed < nr_inputs && fuzz_draw(2) ? nr_packed : 0;
	const struct input *in = &inputs[from + fuzz_draw(nr_inputs - from)];

	*len = in->len;
	return in->data;
}

size_t fuzz_put(u8 *buf, size_t len, size_t max, size_t at, size_t cut,
		const void *p, size_t n)
{
	cut = min(cut, len - at);
	if (len - cut + n > max)
		return len;
	memmove(buf + at + n, buf + at + cut, len - at - cut);
	if (n)
		memcpy(buf + at, p, n);
	return len - cut + n;
}

static size_t mutate(u8 *buf, size_t len, size_t max)
{
	const struct input *in = &inputs[fuzz_draw(nr_inputs)];
	u32 at = fuzz_draw((u32)len + 1), from;
	u8 byte = (u8)fuzz_draw(256);

	switch (fuzz_draw(5)) {
	case 0:
		return fuzz_put(buf, len, max, at, 1 + fuzz_draw(16), buf, 0);
	case 1:
		return fuzz_put(buf, len, max, at, 0, &byte, 1);
	case 2:
		from = fuzz_draw(in->len + 1);
		return fuzz_put(buf, len, max, at, fuzz_draw(32),
				in->data + from, fuzz_draw(in->len - from + 1));
	default:
		if (at < len)
			buf[at] = fuzz_draw(2) ? byte :
				  buf[at] ^ (1u << fuzz_draw(8));
		return len;
	}
}

static size_t begin(u8 *buf, size_t max)
{
	size_t len;
	const u8 *data = fuzz_input(&len);

	len = min(len, max);
	memcpy(buf, data, len);
	return len;
}

static void mutate_all(u64 rounds)
{
	static u8 buf[FUZZ_ROOM];
	size_t (*first)(u8 *, size_t) = begin;
	size_t (*change)(u8 *, size_t, size_t) = mutate;
	const u32 most = &fuzz_own ? fuzz_own.changes : 0;
	const size_t max = input_max();
	size_t len;
	u64 i;
	u32 n;

	if (&fuzz_own && fuzz_own.begin)
		first = fuzz_own.begin;
	if (&fuzz_own && fuzz_own.mutate)
		change = fuzz_own.mutate;
	for (i = 0; i < rounds && nr_inputs; i++) {
		len = first(buf, max);
		n = most ? fuzz_draw(most + 1) : 1 + fuzz_draw(8);
		while (n--)
			len = change(buf, len, max);
		run(buf, len);
	}
}

static int replay(u64 rounds, char **paths)
{
	struct stat st;
	u32 i;

	for (; *paths; paths++) {
		if (!stat(*paths, &st) && S_ISDIR(st.st_mode))
			dir_read(*paths);
		else
			pack_read(*paths);
	}
	signal(SIGABRT, crashed);
	signal(SIGSEGV, crashed);
	signal(SIGBUS, crashed);
	signal(SIGFPE, crashed);
	for (i = 0; i < nr_inputs; i++)
		run(inputs[i].data, inputs[i].len);
	mutate_all(rounds);
	printf("total: %s: %u inputs of the corpus, %llu mutated",
	       program_invocation_short_name, nr_inputs,
	       (unsigned long long)rounds);
	if (&fuzz_own && fuzz_own.taken)
		printf(", %llu taken", (unsigned long long)*fuzz_own.taken);
	putchar('\n');
	for (i = 0; i < nr_inputs; i++)
		free(inputs[i].data);
	return 0;
}

/* Write them as libFuzzer and AFL++ read them: "word", other bytes as \xNN. */
static int words_write(const char *path)
{
	const u32 nr = &fuzz_own ? fuzz_own.nr_words : 0;
	FILE *f = fopen(path, "we");
	const char *p;
	u32 i;

	if (!f)
		fail(path);
	for (i = 0; i < nr; i++) {
		fputc('"', f);
		for (p = fuzz_own.words[i]; *p; p++)
			fprintf(f, *p < ' ' || *p > '~' || *p == '"' ||
				*p == '\\' ? "\\x%02x" : "%c", (u8)*p);
		fputs("\"\n", f);
	}
	if (fclose(f))
		fail(path);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--pack")) {
		dir_read(argv[3]);
		return pack_write(argv[2]);
	}
	if (argc == 4 && !strcmp(argv[1], "--unpack")) {
		pack_read(argv[2]);
		return pack_unpack(argv[3]);
	}
	if (argc == 3 && !strcmp(argv[1], "--words"))
		return words_write(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "--max"))
		return printf("%u\n", input_max()) < 0;
	if (argc < 4 || argv[1][0] == '-') {
		fprintf(stderr, "usage: %s ROUNDS SEED FILE..\n       %s --pack|--unpack FILE DIR\n",
			program_invocation_short_name,
			program_invocation_short_name);
		return 2;
	}
	rng = strtoull(argv[2], NULL, 10);
	return replay(strtoull(argv[1], NULL, 10), argv + 3);
}
#endif /* FUZZ_LIB */
