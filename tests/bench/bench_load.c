// SPDX-License-Identifier: Apache-2.0
/*
 * bench_load.c - how fast weights are read
 *
 * A file of a gigabyte is made in $TMPDIR: a bf16 model, as large ones come.
 * Loading maps it; most of the time goes to the identity, which reads all of it
 * once.  Both together are measured beside read() of the same file in pieces of
 * a megabyte.  From the page cache CPU time counts, since no thread waits.  After
 * the pages were given up time of the clock counts, since the disk decides.
 * Rounds of the two alternate.  Hashing reads memory once more than read() into
 * a piece that stays in the cache; the first figure shows that.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/model/model.h"
#include "tests/bench/bench.h"
#include "tests/bench/disk.h"

#define PIECE	(1u << 20)
#define ROUNDS	5u
#define LAYERS	8u
#define HIDDEN	2048u
#define INTER	8192u
#define VOCAB	32000u

static char dir[256], path[300];
static u64 file_bytes;

static const char config[] =
	"{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":32000,"
	"\"hidden_size\":2048,\"intermediate_size\":8192,"
	"\"num_hidden_layers\":8,\"num_attention_heads\":16,"
	"\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-5}";

/* ---- the file ---- */

static char head[1 << 16];
static u64 head_len, data_len;

static void tensor(const char *name, u64 rows, u64 cols)
{
	const u64 bytes = rows * (cols ? cols : 1) * 2;
	char shape[48];

	snprintf(shape, sizeof(shape), cols ? "%llu,%llu" : "%llu",
		 (unsigned long long)rows, (unsigned long long)cols);
	head_len += (u64)sprintf(head + head_len, "%c\"%s\":{\"dtype\":"
				 "\"BF16\",\"shape\":[%s],\"data_offsets\":"
				 "[%llu,%llu]}", data_len ? ',' : '{', name,
				 shape, (unsigned long long)data_len,
				 (unsigned long long)(data_len + bytes));
	data_len += bytes;
}

static void layer(u32 l)
{
	static const struct {
		const char	*name;
		u32		rows, cols;
	} parts[] = {
		{ "input_layernorm", HIDDEN, 0 },
		{ "post_attention_layernorm", HIDDEN, 0 },
		{ "self_attn.q_proj", HIDDEN, HIDDEN },
		{ "self_attn.k_proj", HIDDEN, HIDDEN },
		{ "self_attn.v_proj", HIDDEN, HIDDEN },
		{ "self_attn.o_proj", HIDDEN, HIDDEN },
		{ "mlp.gate_proj", INTER, HIDDEN },
		{ "mlp.up_proj", INTER, HIDDEN },
		{ "mlp.down_proj", HIDDEN, INTER },
	};
	char name[96];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		snprintf(name, sizeof(name), "model.layers.%u.%s.weight", l,
			 parts[i].name);
		tensor(name, parts[i].rows, parts[i].cols);
	}
}

static void put(int fd, const void *data, u64 len)
{
	if (write(fd, data, len) != (ssize_t)len)
		bench_die("%s: %s", path, strerror(errno));
}

static void file_make(void)
{
	static u16 piece[PIECE / 2];
	u64 left;
	u32 i;
	int fd;

	tensor("model.embed_tokens.weight", VOCAB, HIDDEN);
	tensor("model.norm.weight", HIDDEN, 0);
	tensor("lm_head.weight", VOCAB, HIDDEN);
	for (i = 0; i < LAYERS; i++)
		layer(i);
	head_len += (u64)sprintf(head + head_len, "}");
	while (head_len % 8)
		head[head_len++] = ' ';
	for (i = 0; i < ARRAY_SIZE(piece); i++)
		piece[i] = (u16)(i * 2654435761u >> 18);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		bench_die("%s: %s", path, strerror(errno));
	put(fd, &head_len, 8);
	put(fd, head, head_len);
	for (left = data_len; left; left -= min(left, (u64)PIECE))
		put(fd, piece, min(left, (u64)PIECE));
	fsync(fd);
	close(fd);
	file_bytes = 8 + head_len + data_len;
}

/* ---- measurements ---- */

static void cache_drop(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		bench_die("%s: cannot be dropped from the cache", path);
	close(fd);
}

/* Nanoseconds: of CPU if no thread waits for the disk, else of the clock. */
static u64 now(bool cold)
{
	struct timespec ts;

	clock_gettime(cold ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

/* GB/s of plain reading. */
static double run_read(bool cold)
{
	static u8 piece[PIECE];
	const u64 begin = now(cold);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	u64 n = 0;
	ssize_t got;

	while ((got = read(fd, piece, sizeof(piece))) > 0)
		n += (u64)got;
	close(fd);
	if (n != file_bytes)
		bench_die("%s: short", path);
	return (double)file_bytes / (double)(now(cold) - begin);
}

static void identity_add(void *arg, const char *tag, const void *data,
			 size_t len)
{
	kvmm_identity_add(arg, tag, data, len);
}

/* GB/s of loading and hashing. */
static double run_load(bool cold)
{
	const struct model_opts opts = { .nr_threads = 1 };
	const u64 begin = now(cold);
	static struct kvmm_identity digest;
	u8 id[KVMM_IDENTITY_LEN];
	struct model_error err;
	struct model *model;
	double rate;

	if (model_load(dir, &opts, &model, &err))
		bench_die("%s", err.text);
	kvmm_identity_init(&digest);
	model_identity(model, identity_add, &digest);
	kvmm_identity_final(&digest, id);
	rate = (double)file_bytes / (double)(now(cold) - begin);
	model_free(model);
	return rate;
}

static void measure(const char *name, const char *peer, bool cold,
		    double least)
{
	double load[ROUNDS], plain[ROUNDS], a, b;
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		if (cold)
			cache_drop();
		load[i] = run_load(cold);
		if (cold)
			cache_drop();
		plain[i] = run_read(cold);
	}
	a = bench_median(load, ROUNDS);
	b = bench_median(plain, ROUNDS);
	bench_report(&(struct bench_figure){
		.name = name, .value = a, .unit = "GB/s", .peer = peer,
		.peer_value = b, .min_ratio = least,
	});
	bench_verdict(a >= least * b, "%s: %.2f GB/s, plain reading %.2f", name,
		      a, b);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	char cfg[320];
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/bench_load.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		bench_die("%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	snprintf(cfg, sizeof(cfg), "%s/config.json", dir);
	f = fopen(cfg, "w");
	if (!f || fputs(config, f) < 0 || fclose(f))
		bench_die("%s: %s", cfg, strerror(errno));
	disk_tell(dir);
	file_make();
	run_read(true);
	measure("load-cached", "read-cached", false, 0.2);
	measure("load-cold", "read-cold", true, 0.7);
	unlink(path);
	unlink(cfg);
	rmdir(dir);
	return 0;
}
