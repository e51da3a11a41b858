// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_pack.c - packed weights: one copy in memory
 *
 * Models with files of 25 and 75 MB are loaded with packed and with mapped
 * weights.  Packed weights must be the only copy, while they are made and
 * afterwards, also after the identity has read the file once more.
 * /proc/self/smaps has the file's pages in this process, and /proc/self/status
 * its peak of memory.  Models are also judged, which must report the costs of
 * the real load, and refused. (check_kernels and check_model_fast test that
 * packed weights compute the same within tolerance.)
 *
 * budget: 20 s
 */
#include "runtime/model/weights.h"
#include "tests/unit/golden_fixture.h"

#define MIB	(1ull << 20)
/* Room for one tensor while it is packed, norms, the workspace, ends of tensors. */
#define SLACK	(12 * MIB)

static bool packs;

static void big_write(const char *of, u32 layers)
{
	const struct { const char *key; u32 value; } sizes[] = {
		{ "hidden_size", 1024 }, { "intermediate_size", 3072 },
		{ "num_hidden_layers", layers },
		{ "n_embd", 1024 }, { "n_layer", layers },
	};
	char path[160];
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;
	json_t *o;
	u32 i;

	golden_read(of);
	config_write(NULL, NULL);
	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	o = json_load_file(path, 0, NULL);
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		if (json_object_get(o, sizes[i].key))
			json_object_set_new(o, sizes[i].key,
					    json_integer(sizes[i].value));
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err),
			 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
}

/* The value of @key in /proc/self/status, in bytes. */
static u64 status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long long kb = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), "%llu", &kb);
	fclose(f);
	ck_assert_uint_gt(kb, 0);
	return kb << 10;
}

/* Reset the peak of memory. */
static void peak_reset(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "w");

	ck_assert_ptr_nonnull(f);
	fputs("5", f);
	ck_assert_int_eq(fclose(f), 0);
}

/* Bytes of the weights' file that this process has mapped in. */
static u64 file_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	bool ours = false;
	unsigned long long kb, sum = 0;
	unsigned long from, to;
	u32 seen = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			ours = strstr(line, fixture_dir);
			seen += ours;
		} else if (ours && sscanf(line, "Rss: %llu kB", &kb) == 1) {
			sum += kb << 10;
		}
	}
	fclose(f);
	ck_assert_uint_gt(seen, 0);
	return sum;
}

static struct model *load(const struct model_opts *opts)
{
	struct model_error err;
	struct model *m;

	ck_assert_msg(!model_load(fixture_dir, opts, &m, &err), "%s",
		      err.text);
	return m;
}

/* FNV-1a of all parts of an identity. */
static void hash_part(void *arg, const char *tag, const void *data, size_t len)
{
	const u8 *p = data;
	u64 *h = arg;
	size_t i;

	for (i = 0; i < len; i += len > 4096 ? 61 : 1)
		*h = (*h ^ p[i]) * 0x100000001b3ull;
	for (; *tag; tag++)
		*h = (*h ^ (u8)*tag) * 0x100000001b3ull;
}

static u64 identity(const struct model *m)
{
	u64 h = 0xcbf29ce484222325ull;

	model_identity(m, hash_part, &h);
	return h;
}

static u64 load_identity(const struct model_opts *opts)
{
	struct model *m = load(opts);
	u64 h = identity(m);

	model_free(m);
	return h;
}

/* A judged model reports the same costs as the real load. */
static void assert_judged(const struct model_opts *opts,
			  const struct model_info *is)
{
	struct model_opts judge = *opts;
	const struct model_info *i;
	struct model *m;

	judge.judge = true;
	m = load(&judge);
	i = model_info(m);
	ck_assert_uint_eq(i->packed_bytes, is->packed_bytes);
	ck_assert_uint_eq(i->mapped_bytes, is->mapped_bytes);
	ck_assert_uint_eq(i->copy_bytes, is->copy_bytes);
	model_free(m);
}

static void setup(void)
{
	packs = kern_get("cpu-fast")->pack;
	if (!packs)
		printf("fast mode packs no weights here: nothing to test\n");
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

/* A sanitizer keeps freed memory for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEPT		(256 * MIB)
#else
#define KEPT		0
#endif

START_TEST(test_one_copy)
{
	struct model_opts opts = { .weights = MODEL_WEIGHTS_PACKED };
	/* A model whose matrices are transposed first, and one packed in place. */
	const bool gpt2 = _i;
	const struct model_info *i;
	struct model *m;
	u64 rss, bytes;

	if (!packs)
		return;
	big_write(gpt2 ? "gpt2" : "llama", 1);
	rss = status_bytes("VmRSS:");
	peak_reset();
	m = load(&opts);
	i = model_info(m);
	bytes = i->weight_bytes;
	ck_assert_uint_gt(bytes, 20 * MIB);
	ck_assert_uint_gt(i->packed_bytes, bytes / 10 * 9);
	ck_assert_uint_lt(i->mapped_bytes + i->copy_bytes, bytes / 10);
	ck_assert_uint_lt(file_bytes(), 2 * MIB);
	ck_assert_uint_lt(status_bytes("VmRSS:"), rss + bytes + SLACK + KEPT);
	ck_assert_uint_lt(status_bytes("VmHWM:"), rss + bytes + SLACK + KEPT);
	free(run_chunks(m, 37));
	identity(m);
	ck_assert_uint_lt(file_bytes(), 2 * MIB);
	ck_assert_uint_lt(status_bytes("VmHWM:"), rss + bytes + SLACK * 3 / 2 + KEPT);
	assert_judged(&opts, i);
	model_free(m);
	ck_assert_uint_lt(status_bytes("VmRSS:"), rss + SLACK + KEPT);
}
END_TEST

/* Large weights are packed by default, in fast mode; mapped weights are shared. */
START_TEST(test_auto)
{
	struct model_opts opts = { .weights = MODEL_WEIGHTS_AUTO };
	struct model *m;
	const bool big = packs && weights_huge_pages();

	big_write("llama", 3);
	m = load(&opts);
	ck_assert(!model_info(m)->packed_bytes == !big);
	assert_judged(&opts, model_info(m));
	model_free(m);
	opts.mode = MODEL_EXACT;
	m = load(&opts);
	ck_assert_uint_eq(model_info(m)->packed_bytes, 0);
	model_free(m);
	opts.mode = MODEL_FAST;
	opts.weights = MODEL_WEIGHTS_MAPPED;
	m = load(&opts);
	ck_assert_uint_eq(model_info(m)->packed_bytes, 0);
	free(run_chunks(m, 37));
	ck_assert_uint_gt(file_bytes(), 64 * MIB);
	model_free(m);
	opts.weights = MODEL_WEIGHTS_AUTO;
	opts.dummy = true;
	m = load(&opts);
	ck_assert_uint_eq(model_info(m)->packed_bytes, 0);
	model_free(m);
	opts.dummy = false;
	big_write("llama", 1);
	m = load(&opts);
	ck_assert_uint_eq(model_info(m)->packed_bytes, 0);
	model_free(m);
}
END_TEST

/* Packed weights give other bits, so their KV must have another identity. */
START_TEST(test_identity)
{
	struct model_opts packed = { .weights = MODEL_WEIGHTS_PACKED };
	struct model_opts mapped = { .weights = MODEL_WEIGHTS_MAPPED };

	if (!packs)
		return;
	golden_read(cases[0]);
	config_write("torch_dtype", json_string("bfloat16"));
	packed.dummy = mapped.dummy = true;
	ck_assert_uint_eq(load_identity(&packed), load_identity(&packed));
	ck_assert_uint_eq(load_identity(&mapped), load_identity(&mapped));
	ck_assert_uint_ne(load_identity(&packed), load_identity(&mapped));
}
END_TEST

/* Weights in f32 are never packed. */
START_TEST(test_f32)
{
	struct model_opts packed = { .weights = MODEL_WEIGHTS_PACKED };
	struct model_opts mapped = { .weights = MODEL_WEIGHTS_MAPPED };
	struct model *m;

	if (!packs)
		return;
	golden_read(cases[0]);
	config_write(NULL, NULL);
	packed.dummy = mapped.dummy = true;	/* dummy weights are f32 */
	m = load(&packed);
	ck_assert_uint_eq(model_info(m)->packed_bytes, 0);
	model_free(m);
	ck_assert_uint_eq(load_identity(&packed), load_identity(&mapped));
}
END_TEST

START_TEST(test_refused)
{
	static const char * const kernels[] = { "ref", "cpu:base", NULL };
	struct model_opts opts = {
		.weights = MODEL_WEIGHTS_PACKED, .kernel = kernels[_i],
		.mode = _i < 2 ? MODEL_FAST : MODEL_EXACT, .dummy = true,
	};
	struct model_error err;
	struct model *m;

	golden_read(cases[0]);
	config_write(NULL, NULL);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &m, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, "packs no weights on this CPU: choose "
			     "fast mode, or mapped weights"), "%s", err.text);
}
END_TEST

static Suite *pack_suite(void)
{
	Suite *s = suite_create("model_pack");
	TCase *tc = tcase_create("packed");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_one_copy, 0, 2);
	tcase_add_test(tc, test_auto);
	tcase_add_test(tc, test_identity);
	tcase_add_test(tc, test_f32);
	tcase_add_loop_test(tc, test_refused, 0, 3);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(pack_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
