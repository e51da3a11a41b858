// SPDX-License-Identifier: Apache-2.0
/*
 * tree.c - the one list of files, and paths
 *
 * A path is compared with the table component by component.  There are no
 * directory records: a directory is what more than one line begins with, and
 * lines of one directory stand together.  A component in capitals in the
 * table is looked up among the domains or clients of the snapshot that was
 * taken for this very request, so that what a path names and what its file
 * says are one instant.
 */
#include "kvmm/proc/internal.h"

#define PATH_DEPTH	8

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
	PROC_SYS_VM(x)
#undef x
	NR_SYS_VM
};

static const struct proc_file files[] = {
#define x(path, mode, need, show, text)					\
	{ path, mode, need, show, 0, text },
	PROC_FILES(x)
#undef x
#define x(name, text)							\
	{ "sys/vm/" #name, 0444, 0, show_sys_vm, SYS_VM_##name, text },
	PROC_SYS_VM(x)
#undef x
};

/* A tenant is not told of files that it does not see. */
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

/* sys/vm/NAME - a size or time that was fixed at start; one value. */
int show_sys_vm(const struct proc_ctx *ctx)
{
	const struct core_config *cfg = &ctx->proc->cfg;
	const u64 value[NR_SYS_VM] = {
#define x(name, text) [SYS_VM_##name] = cfg->name,
		PROC_SYS_VM(x)
#undef x
	};

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
 * Split a path; an empty component, as of `a//b`, stays and matches nothing.
 * One slash before and, for @dir, one behind are allowed.
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

/* NEED_* for the names that may stand for component @own of the table. */
static u32 part_need(const struct part *own)
{
	if (part_is(own, "NAME"))
		return NEED_DOMAINS;
	return part_is(own, "ID") ? NEED_CLIENTS : 0;
}

/*
 * Does @given name component @own of the table?  Fills @ctx for names;
 * without @ctx any name will do.
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
	ctx->client = proc_client_by_name(ctx->proc, given->s, given->len);
	return ctx->client;
}

/**
 * file_match() - how much of a file's path is named
 * @ctx:   takes the domain or client that is named; NULL: any will do
 * @file:  line of the table
 * @part:  the path, @nr components
 * @own:   takes the file's own components
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

/* What must be fetched to resolve a path, and to print or list it. */
static u32 path_need(const struct part *part, u32 nr)
{
	struct part own[PATH_DEPTH + 1];
	u32 need = 0, nr_own, i, k;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (!file_match(NULL, &files[i], part, nr, own, &nr_own))
			continue;
		for (k = 0; k < nr_own && k <= nr; k++)
			need |= part_need(&own[k]);
		if (nr == nr_own)
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
	err = proc_fetch_node(proc, path_need(part, nr));
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

/* Names of what is there now; @what is a component in capitals. */
static void ls_names(const struct proc_ctx *ctx, const struct part *what)
{
	const struct proc *proc = ctx->proc;
	u32 i;

	if (part_need(what) == NEED_DOMAINS) {
		for (i = 0; i < proc->node.nr_domains; i++) {
			proc_domain_name(proc, &proc->domains[i], ctx->m);
			seq_puts(ctx->m, "/\n");
		}
	} else {
		for (i = 0; i < proc->node.nr_clients; i++)
			seq_printf(ctx->m, "%u/\n", proc->clients[i].id);
	}
}

static void ls_part(const struct proc_ctx *ctx, const struct part *own,
		    bool dir)
{
	if (part_need(own))
		ls_names(ctx, own);
	else
		seq_printf(ctx->m, "%.*s%s\n", (int)own->len, own->s,
			   dir ? "/" : "");
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
	err = proc_fetch_node(proc, path_need(part, nr));
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
		ls_part(&ctx, &last, nr + 1 < nr_own);
	}
	return found ? 0 : -ENOENT;
}
