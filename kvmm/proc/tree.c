// SPDX-License-Identifier: Apache-2.0
/*
 * tree.c - the one list of files, and paths
 *
 * A path is compared with the table component by component.  There are no
 * directory records: a directory is the common beginning of several lines, and
 * the lines of one directory stand together.  A component in capitals in the
 * table is looked up among the domains or clients of the snapshot that was taken
 * for this request, so the path and the text of its file are of one instant.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/admin.h>
#include <kvmm/opts.h>

#include "kvmm/proc/internal.h"

#define PATH_DEPTH	8
#define MODE_DIR	0040555u
#define MODE_FILE	0100000u	/* or-ed with the bits of the table */

struct proc_file {
	const char	*path;
	u32		mode;
	u32		need;
	int		(*show)(const struct proc_ctx *ctx);
	u32		arg;
	const char	*text;
};

enum {
#define x(name, text) SYS_VM_##name,
	PROC_SYS_VM_FIXED(x)
#undef x
#define x(type, name, ...) SYS_VM_##name,
	KVMM_TUNABLES(x)
#undef x
	NR_SYS_VM
};

static const struct proc_file files[] = {
#define x(path, mode, need, show, text)					\
	{ path, mode, need, show, PSI_RES(need), text },
	PROC_FILES(x)
#undef x
#define x(name, text)							\
	{ "sys/vm/" #name, 0444, 0, show_sys_vm, SYS_VM_##name, text },
	PROC_SYS_VM_FIXED(x)
#undef x
#define x(type, name, opt, def, least, most, unit, text)			\
	{ "sys/vm/" #name, 0644, 0, show_sys_vm, SYS_VM_##name, text },
	KVMM_TUNABLES(x)
#undef x
};

/* A tenant sees only the files that are made for tenants. */
static bool file_shown(const struct proc *proc, const struct proc_file *file)
{
	return proc->key == PROC_ALL || (file->need & FOR_TENANTS);
}

bool proc_get_entry(u32 i, struct proc_entry *entry)
{
	if (i >= ARRAY_SIZE(files))
		return false;
	entry->path = files[i].path;
	entry->mode = files[i].mode;
	entry->text = files[i].text;
	return true;
}

/* sys/vm/NAME - one value: a size or time that was fixed at start, or a tunable */
int show_sys_vm(const struct proc_ctx *ctx)
{
	const struct core_config *cfg = &ctx->proc->cfg;
	int err = proc_fetch_config(ctx->proc);
	const u64 value[NR_SYS_VM] = {
#define x(name, text) [SYS_VM_##name] = cfg->name,
		PROC_SYS_VM_FIXED(x)
#undef x
#define x(type, name, ...) [SYS_VM_##name] = cfg->name,
		KVMM_TUNABLES(x)
#undef x
	};

	if (err)
		return err;
	seq_printf(ctx->m, "%llu\n", (unsigned long long)value[ctx->arg]);
	return 0;
}

struct part {
	const char	*s;
	size_t		len;
};

static bool part_is(const struct part *part, const char *name)
{
	return part->len == strlen(name) && !memcmp(part->s, name, part->len);
}

static bool part_same(const struct part *a, const struct part *b)
{
	return a->len == b->len && !memcmp(a->s, b->s, a->len);
}

/*
 * Split a path.  An empty component, as in `a//b`, stays and matches no name.  One
 * slash is allowed before the path and, with @dir, one behind it.
 * Return: number of components, PATH_DEPTH + 1 when there are more.
 */
static u32 path_split(const char *path, bool dir, struct part *part)
{
	const char *end;
	u32 nr = 0;

	if (*path == '/')
		path++;
	while (nr <= PATH_DEPTH && !(dir && !*path)) {
		end = strchrnul(path, '/');
		part[nr++] = (struct part){ path, end - path };
		if (!*end)
			break;
		path = end + 1;
	}
	return nr;
}

/* NEED_* of the names that match component @own of the table; 0: it is no name. */
static u32 part_need(const struct part *own)
{
	if (part_is(own, "NAME"))
		return NEED_DOMAINS;
	if (part_is(own, "SEQ"))
		return NEED_SEQS;
	if (part_is(own, "EVENT"))
		return NEED_EVENTS;
	if (part_is(own, "SIZE"))
		return NEED_SIZES;
	if (part_is(own, "POOL"))
		return NEED_POOLS;
	return part_is(own, "ID") ? NEED_CLIENTS : 0;
}

/* Find an open sequence of @ctx->client by its number in the client. */
static bool seq_match(struct proc_ctx *ctx, const struct part *given)
{
	char name[12], want[12];
	u32 at = 0, seq;

	if (given->len >= sizeof(name))
		return false;
	memcpy(name, given->s, given->len);
	name[given->len] = '\0';
	seq = (u32)strtoul(name, NULL, 10);
	snprintf(want, sizeof(want), "%u", seq);
	if (strcmp(name, want) || seq >= ctx->proc->cfg.max_seqs)
		return false;
	ctx->seq = ctx->client->id * ctx->proc->cfg.max_seqs + seq;
	return proc_fetch_runs(ctx->proc, ctx->seq, &at) >= 0;
}

static bool event_match(struct proc_ctx *ctx, const struct part *given)
{
	int event = proc_event_by_name(given->s, given->len);

	ctx->event = (u32)event;
	return event >= 0;
}

/* Find a device pool by its name, gpu0 or the like. */
static bool pool_match(struct proc_ctx *ctx, const struct part *given)
{
	return kv_pool_parse(given->s, given->len, &ctx->pool) &&
	       ctx->pool < ctx->proc->node.nr_zones;
}

/* Is it a size, in bytes or with a unit? */
static bool size_match(struct proc_ctx *ctx, const struct part *given)
{
	char text[32];

	if (given->len >= sizeof(text))
		return false;
	memcpy(text, given->s, given->len);
	text[given->len] = '\0';
	return !kv_parse_size(text, &ctx->bytes);
}

/*
 * Does @given match component @own of the table?  Fills @ctx for a name;
 * without @ctx any name matches.
 */
static bool part_match(struct proc_ctx *ctx, const struct part *own,
		       const struct part *given)
{
	u32 need = part_need(own);

	if (!need)
		return part_same(own, given);
	if (!ctx)
		return true;
	if (need == NEED_DOMAINS) {
		ctx->domain = proc_domain_by_name(ctx->proc, given->s,
						  given->len);
		return ctx->domain;
	}
	if (need == NEED_SEQS)
		return seq_match(ctx, given);
	if (need == NEED_EVENTS)
		return event_match(ctx, given);
	if (need == NEED_SIZES)
		return size_match(ctx, given);
	if (need == NEED_POOLS)
		return pool_match(ctx, given);
	ctx->client = proc_client_by_name(ctx->proc, given->s, given->len);
	return ctx->client;
}

/**
 * file_match() - does a path name a file, or a directory above it?
 * @ctx:   takes the domain or client of the path; NULL: any name matches
 * @file:  line of the table
 * @part:  the path, @nr components
 * @own:   takes the components of the file's path
 * @nr_own: takes their number
 *
 * Return: true when the path names @file or a directory above it.
 */
static bool file_match(struct proc_ctx *ctx, const struct proc_file *file,
		       const struct part *part, u32 nr, struct part *own,
		       u32 *nr_own)
{
	u32 i;

	*nr_own = path_split(file->path, false, own);
	if (nr > *nr_own)
		return false;
	for (i = 0; i < nr; i++) {
		if (!part_match(ctx, &own[i], &part[i]))
			return false;
	}
	return true;
}

/* Records to fetch for resolving a path, and for listing or, with @show, printing it. */
static u32 path_need(const struct part *part, u32 nr, bool show)
{
	struct part own[PATH_DEPTH + 1];
	u32 need = 0, nr_own, i, k;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_match(NULL, &files[i], part, nr, own, &nr_own))
			continue;
		for (k = 0; k < nr_own && k <= nr; k++)
			need |= part_need(&own[k]);
		if (nr == nr_own && show)
			need |= files[i].need;
	}
	return need;
}

int proc_tree_cat(struct proc *proc, const char *path, struct seq_file *out)
{
	struct proc_ctx ctx = { .proc = proc, .m = out };
	struct part part[PATH_DEPTH + 1], own[PATH_DEPTH + 1];
	u32 nr, nr_own, i;
	int err;

	nr = path_split(path, false, part);
	err = proc_fetch_node(proc, path_need(part, nr, true));
	if (err)
		return err;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_shown(proc, &files[i]) ||
		    !file_match(&ctx, &files[i], part, nr, own, &nr_own))
			continue;
		if (nr < nr_own)
			return -EISDIR;
		ctx.arg = files[i].arg;
		return files[i].show(&ctx);
	}
	return nr == 1 && !part->len ? -EISDIR : -ENOENT;
}

static int ls_seqs(const struct proc_ctx *ctx)
{
	struct proc *proc = ctx->proc;
	struct proc_slice slice = { 0 };
	int more;
	u32 i;

	do {
		more = proc_fetch_seqs(proc, ctx->client->id, &slice);
		for (i = 0; more >= 0 && i < slice.nr; i++)
			seq_printf(ctx->m, "%u/\n",
				   KVMM_SEQ_INDEX(proc->seqs[i].seq));
	} while (more > 0 && !seq_error(ctx->m));
	return min(more, 0);
}

/* List the names of the records that exist; @what is a component in capitals. */
static int ls_names(const struct proc_ctx *ctx, const struct part *what)
{
	const struct proc *proc = ctx->proc;
	u32 i;

	if (part_need(what) == NEED_DOMAINS) {
		for (i = 0; i < proc->node.nr_domains; i++) {
			proc_domain_name(proc, &proc->domains[i], ctx->m);
			seq_puts(ctx->m, "/\n");
		}
		return 0;
	}
	if (part_need(what) == NEED_SEQS)
		return ls_seqs(ctx);
	if (part_need(what) == NEED_EVENTS) {
		for (i = 0; i < NR_CORE_TRACE; i++)
			seq_printf(ctx->m, "%s/\n", proc_event_name(i));
		return 0;
	}
	if (part_need(what) == NEED_POOLS) {
		for (i = 0; i < proc->node.nr_zones; i++)
			seq_printf(ctx->m, PROC_POOL_NAME "/\n", i);
		return 0;
	}
	if (part_need(what) == NEED_SIZES) {
		proc_shrink_ls(ctx);
		return 0;
	}
	for (i = 0; i < proc->node.nr_clients; i++)
		seq_printf(ctx->m, "%u/\n", proc->clients[i].id);
	return 0;
}

static int ls_part(const struct proc_ctx *ctx, const struct part *own,
		   bool dir)
{
	if (part_need(own))
		return ls_names(ctx, own);
	seq_printf(ctx->m, "%.*s%s\n", (int)own->len, own->s, dir ? "/" : "");
	return 0;
}

int proc_tree_ls(struct proc *proc, const char *path, struct seq_file *out)
{
	struct proc_ctx ctx = { .proc = proc, .m = out };
	struct part part[PATH_DEPTH + 1], own[PATH_DEPTH + 1];
	struct part last = { "", 0 };
	u32 nr, nr_own, i;
	bool found = false;
	int err;

	nr = path_split(path, true, part);
	err = proc_fetch_node(proc, path_need(part, nr, false));
	if (err)
		return err;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_shown(proc, &files[i]) ||
		    !file_match(&ctx, &files[i], part, nr, own, &nr_own))
			continue;
		if (nr == nr_own)
			return -ENOTDIR;
		found = true;
		if (part_same(&own[nr], &last))
			continue;
		last = own[nr];
		err = ls_part(&ctx, &last, nr + 1 < nr_own);
		if (err)
			return err;
	}
	return found ? 0 : -ENOENT;
}

int proc_tree_stat(struct proc *proc, const char *path, struct seq_file *out)
{
	struct proc_ctx ctx = { .proc = proc, .m = out };
	struct part part[PATH_DEPTH + 1], own[PATH_DEPTH + 1];
	u32 nr, nr_own, i;
	int err;

	nr = path_split(path, true, part);
	err = proc_fetch_node(proc, path_need(part, nr, false));
	if (err)
		return err;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_shown(proc, &files[i]) ||
		    !file_match(&ctx, &files[i], part, nr, own, &nr_own))
			continue;
		seq_printf(out, "%o\n", nr < nr_own ? MODE_DIR :
			   MODE_FILE | files[i].mode);
		return 0;
	}
	return -ENOENT;
}

/* Find the file of a trigger: fills @t but for its times. */
int proc_tree_trigger(struct proc *proc, const char *path,
		      struct proc_trigger *t)
{
	struct proc_ctx ctx = { .proc = proc };
	struct part part[PATH_DEPTH + 1], own[PATH_DEPTH + 1];
	u32 nr, nr_own, i;
	int err;

	nr = path_split(path, false, part);
	err = proc_fetch_node(proc, path_need(part, nr, false));
	if (err)
		return err;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_shown(proc, &files[i]) ||
		    !file_match(&ctx, &files[i], part, nr, own, &nr_own))
			continue;
		if (nr < nr_own)
			return -EISDIR;
		t->res = files[i].arg;
		t->of_domain = ctx.domain;
		if (ctx.domain)
			t->domain = *ctx.domain;
		return t->res < CORE_PSI_NR_RES && files[i].show == show_pressure ?
		       0 : -EOPNOTSUPP;
	}
	return -ENOENT;
}
