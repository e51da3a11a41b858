// SPDX-License-Identifier: Apache-2.0
/*
 * options.c - option parsing shared by the commands
 *
 * lib/opts.c reads tables of options with long names and whole numbers.  This
 * file adds the usual short names, real numbers, and the exit codes.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/cli/cli.h"

const struct kv_exit cli_exits[CLI_NR_EXITS] = {
#define x(code, text) { code, text },
	CLI_EXITS(x)
#undef x
};

/* The long name of short name @arg, or NULL. */
static const char *long_name(const char * const *shorts, const char *arg)
{
	for (; shorts && *shorts; shorts += 2)
		if (!strcmp(arg, shorts[0]))
			return shorts[1];
	return NULL;
}

/* Does option @arg take the next argument? */
static bool takes_next(const struct kv_program *prog, const char *arg)
{
	u32 i;

	for (i = 0; i < prog->nr_opts; i++)
		if (!strcmp(arg + 2, prog->opts[i].name))
			return prog->opts[i].kind != KV_OPT_flag;
	return false;
}

int cli_parse(const struct kv_program *prog, const char * const *shorts,
	      void *values, int argc, char **argv, int *nr)
{
	char text[512];
	int i, ret;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		const char *name = long_name(shorts, argv[i]);

		if (name)
			argv[i] = (char *)(uintptr_t)name;
		if (!strncmp(argv[i], "--", 2)) {
			i += takes_next(prog, argv[i]);
		} else if (argv[i][0] == '-' && argv[i][1] &&
			   strcmp(argv[i], "-h") && !strchr(argv[i], ' ')) {
			pr_err("unknown option %.60s: see %s --help; a prompt that begins with a dash goes behind --",
			       argv[i], prog->name);
			return EX_USAGE;
		}
	}
	ret = kv_opts_parse(prog, values, argc, argv, text, sizeof(text));
	if (ret == -ECANCELED)
		return -1;
	if (ret < 0) {
		pr_err("%s", text);
		return EX_USAGE;
	}
	*nr = ret;
	return 0;
}

int cli_number(const char *name, const char *text, double lo, double hi,
	       double *out)
{
	char *end;
	double v;

	if (!text)
		return 0;
	v = strtod(text, &end);
	if (end == text || *end || isnan(v)) {
		pr_err("--%s: '%.40s' is no number: write one like 0.8", name,
		       text);
		return EX_USAGE;
	}
	if (v < lo || v > hi) {
		pr_err("--%s: %.40s is out of range: give %g to %g", name,
		       text, lo, hi);
		return EX_USAGE;
	}
	*out = v;
	return 0;
}

int cli_whole(const char *name, const char *text, u64 hi, u64 *out)
{
	u64 v;
	int err;

	if (!text)
		return 0;
	err = kv_parse_uint(text, &v);
	if (err == -EINVAL) {
		pr_err("--%s: '%.40s' is no number: write decimal digits",
		       name, text);
		return EX_USAGE;
	}
	if (err || v > hi) {
		pr_err("--%s: %.40s is out of range: give 0 to %llu", name,
		       text, (unsigned long long)hi);
		return EX_USAGE;
	}
	*out = v;
	return 0;
}

const char *cli_kernel(u32 choice)
{
	static const char * const names[] = { NULL, "cpu", "ref", "null" };

	if (choice == ARRAY_SIZE(names) - 1)
		pr_warn("--kernels null computes nothing: texts have no meaning, only the time around the model has");
	return names[choice];
}

void cli_types(u32 dtype, u32 kv, struct model_opts *mo)
{
	static const struct {
		enum model_dtype	type;
		enum model_kv_type	kv;
	} types[] = {
		{ MODEL_DTYPE_AUTO, MODEL_KV_AUTO },
		{ MODEL_F32, MODEL_KV_AUTO },
		{ MODEL_BF16, MODEL_KV_AUTO },
		{ MODEL_F32, MODEL_KV_AUTO },
		{ MODEL_F32, MODEL_KV_AUTO },
		{ MODEL_BF16, MODEL_KV_AUTO },
		{ MODEL_F32, MODEL_KV_F16 },
		{ MODEL_F32, MODEL_KV_F16 },
	};
	static const enum model_kv_type kv_types[] = {
		MODEL_KV_AUTO, MODEL_KV_F32, MODEL_KV_BF16, MODEL_KV_F16,
		MODEL_KV_FP8, MODEL_KV_INT8, MODEL_KV_F32, MODEL_KV_BF16,
		MODEL_KV_F16, MODEL_KV_FP8,
	};

	mo->dtype = types[dtype].type;
	mo->kv_type = kv ? kv_types[kv] : types[dtype].kv;
}

int cli_exit_of(int err)
{
	switch (-err) {
	case EINVAL:
	case EOPNOTSUPP:
	case EILSEQ:
	case E2BIG:
	case EDQUOT:
	case EFBIG:
	case EOVERFLOW:
	case EDOM:
	case ERANGE:
	case ENODATA:
		return EX_DATAERR;
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case ENXIO:
		return EX_NOINPUT;
	case ENOMEM:
		return EX_OSERR;
	case ENODEV:
	case ENOEXEC:
		return EX_UNAVAILABLE;
	case EIO:
		return EX_IOERR;
	case EACCES:
	case EPERM:
		return EX_NOPERM;
	case ENOTRECOVERABLE:
		return CLI_EX_DEVICE;
	case EAGAIN:
	case EBUSY:
	case ENOSPC:
	case ENFILE:
	case EMFILE:
	case ETIMEDOUT:
	case ECONNRESET:
		return EX_TEMPFAIL;
	default:
		return EX_SOFTWARE;
	}
}
