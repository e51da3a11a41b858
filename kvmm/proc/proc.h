/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.h - the files that tell an operator what the daemon does, and why
 *
 * Text is made here, on the control thread, whoever carries it: kvctl over
 * the view socket, a mounted file system, a snapshot on disk.  A request is
 * one line, an answer is text or an errno.
 *
 *   cat PATH	the text of a file
 *   ls [PATH]	names, one a line, directories with a slash at the end
 *   stat [PATH] what it is: st_mode in octal, of a directory or a file
 *   check	runs the walkers: `ok`, or the number of faults and the first
 *
 * A tenant sees less (proc_request_as()): its own domains, clients, sequences
 * and extents, and no figure that tells of others; nor may it run the walkers.
 *
 * On a stream socket the request ends with a newline and the answer begins
 * with a line made by proc_answer_head(): `ok BYTES`, followed by that many
 * bytes, or `error ERRNO TEXT`.  Then the daemon closes.
 *
 * Context: everything here runs on the control thread, one request at a time.
 */
#ifndef KVMM_PROC_PROC_H
#define KVMM_PROC_PROC_H

#include <kvmm/seq.h>
#include <kvmm/swapd.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"
#include "kvmm/dev/hostpool.h"

#define PROC_REQ_MAX		4096	/* bytes of a request, newline included */
#define PROC_HEAD_MAX		512	/* bytes of the first line of an answer */
#define PROC_TEXT_MAX		(64u << 20)	/* bytes of one file */

/* What the shell knows of a client and the core does not. */
struct proc_client_info {
	pid_t	pid;
	uid_t	uid;
	char	comm[16];	/* NUL-terminated */
};

#define PROC_ALL	(~0ull)		/* no tenant's key: all of them */

/**
 * struct proc_tenant_info - what the shell knows of a tenant
 * @name:    as people know it
 * @socket:  where its clients attach; lives as long as the source
 * @conns:   connections, of clients and others
 * @fds:     descriptors sent and not acknowledged
 * @refused: times that it was refused something by name
 */
struct proc_tenant_info {
	char		name[48];
	const char	*socket;
	u32		clients;
	u32		conns;
	u32		fds;
	u32		max_clients;
	u32		max_conns;
	u32		max_domains;
	u32		max_fds;
	u32		max_weight;
	u64		max_min;
	u64		refused;
};

/**
 * struct proc_swap_area - what the shell knows of a swap area
 * @path:   as the operator named it; lives until the next request
 * @device: a block device
 * @lost:   swapd does not take it any more, or its disk failed too often
 * @index:  under which swapd knows it
 */
struct proc_swap_area {
	const char	*path;
	bool		device;
	bool		lost;
	u32		index;
};

/* What the shell counts of its requests to swapd; they only rise. */
#define PROC_SWAP_COUNTERS(x)						\
	x(deaths,	"times that a swapd ended")			\
	x(orphans,	"requests that a dead swapd left unfinished")	\
	x(orphans_done,	"of these, writes that the kernel finished")	\
	x(again,	"of these, given to the next swapd")		\
	x(given_up,	"requests failed: no swapd, no area, or too many deaths") \
	x(strays,	"completions of no open request")

/*
 * What the copier did, whether there are areas or not.  Its nanoseconds over
 * those of the clock are the part of the time that it was busy.
 */
#define PROC_COPIER_COUNTERS(x)						\
	x(copy_out_bytes, "bytes copied from the device to the host pool") \
	x(copy_out_ns,	"nanoseconds that the copier took for them")	\
	x(copy_in_bytes, "bytes copied from the host pool to the device") \
	x(copy_in_ns,	"nanoseconds that the copier took for them")	\
	x(copy_move_bytes, "bytes copied inside the device")		\
	x(copy_move_ns,	"nanoseconds that the copier took for them")

/* What the shell counts of each area; they only rise. */
#define PROC_AREA_COUNTERS(x)						\
	x(busy_ns,	"nanoseconds with at least one request unfinished")

/* The same, how many there are now. */
#define PROC_SWAP_NOW(x)						\
	x(pid,		"process of swapd, 0: none runs")		\
	x(generation,	"which start of swapd it is")			\
	x(nr_open,	"requests that a swapd has or had")		\
	x(nr_orphans,	"of these, requests of a dead swapd that may still run") \
	x(nr_backlog,	"requests that wait to be given to swapd")

/**
 * struct proc_swap_info - the link to swapd
 * @engine: how it transfers, a word; NULL: none runs
 * @shell: of an area by swapd's index
 * @swapd: by enum swapd_counter
 * @area:  by swapd's index of an area and enum swapd_area_counter
 */
struct proc_swap_info {
#define x(name, text) u64 name;
	PROC_SWAP_NOW(x)
	PROC_SWAP_COUNTERS(x)
	PROC_COPIER_COUNTERS(x)
#undef x
	struct {
#define x(name, text) u64 name;
		PROC_AREA_COUNTERS(x)
#undef x
	} shell[CORE_MAX_AREAS];
	const char	*engine;
	u64	swapd[NR_SWAPD_COUNTERS];
	u64	area[CORE_MAX_AREAS][NR_SWAPD_AREA_COUNTERS];
};

/**
 * struct proc_source - what the files are made from
 * @call:         runs @fn on the thread that owns the core, between two of
 *                its requests, and waits until it has returned; 0, or
 *                -errno when the core cannot be asked and @fn did not run.
 *                @fn is short: it copies, it never formats
 * @client_info:  fills @info for an attached client; 0 or -ENOENT.  Called on
 *                the control thread.  NULL: nothing is known
 * @tenant_info:  fills @info for a tenant's key; 0 or -ENOENT.  As above
 * @swap_area:    fills @info for area @i of the core; 0 or -ENOENT.  As above
 * @swap_info:    fills @info; 0, or -ENOENT when there is no swap.  As above
 * @now:          CLOCK_MONOTONIC in nanoseconds; NULL: the system's clock
 * @idle_ns:      time that the thread of the core has spent asleep; NULL: 0
 * @arg:          first argument of all of these
 * @host:         what the host pool's pages are; NULL: there is none
 * @backend:      "host" or "cuda"
 * @socket:       path of the attach socket
 * @start_ns:     CLOCK_MONOTONIC when the daemon started
 * @daemon_epoch: as told to clients
 * @start:        how it began; NULL: cold
 *
 * The strings live as long as the struct proc.
 */
struct proc_source {
	int		(*call)(void *arg,
				void (*fn)(struct core *core, void *fn_arg),
				void *fn_arg);
	int		(*client_info)(void *arg, u32 client,
				       struct proc_client_info *info);
	int		(*tenant_info)(void *arg, u64 key,
				       struct proc_tenant_info *info);
	int		(*swap_area)(void *arg, u32 i,
				     struct proc_swap_area *info);
	int		(*swap_info)(void *arg, struct proc_swap_info *info);
	u64		(*now)(void *arg);
	u64		(*idle_ns)(void *arg);
	void		*arg;
	const struct hostpool_found *host;
	const char	*backend;
	const char	*socket;
	u64		start_ns;
	u64		daemon_epoch;
	const char	*start;
};

struct proc;

/**
 * proc_create() - make the files of one daemon
 * @src: copied; @src->call must work already: it is asked for the core's
 *       configuration, which sizes every buffer
 *
 * Return: the files, or NULL with errno set.
 */
struct proc *proc_create(const struct proc_source *src);

/* proc_destroy() - give back what proc_create() made; NULL is allowed. */
void proc_destroy(struct proc *proc);

/**
 * proc_request() - answer one request
 * @proc: of proc_create()
 * @req:  @len bytes, not NUL-terminated; a newline at the end is allowed.
 *        May hold anything: it comes from outside
 * @len:  bytes
 * @out:  of seq_init(); what it held is dropped.  On success the text, on
 *        failure one line without newline that names the thing
 *
 * Return: 0; -ENOENT, -EISDIR, -ENOTDIR for paths, -ENAMETOOLONG, -EINVAL
 * for a malformed request, -EOVERFLOW when the text is longer than @out
 * allows, -ENOMEM, or what @call answered.
 */
int __must_check proc_request(struct proc *proc, const char *req, size_t len,
			      struct seq_file *out);

/**
 * proc_request_as() - the same for a tenant
 * @key: of the tenant; PROC_ALL: as proc_request()
 *
 * Return: also -EPERM for what a tenant may not ask.
 */
int __must_check proc_request_as(struct proc *proc, u64 key, const char *req,
				 size_t len, struct seq_file *out);

/**
 * proc_find_domain() - the domain that is shown by a name
 * @name: as in paths: escaped, with the id behind an @ where two share it
 * @v:    takes a copy
 *
 * No two domains are shown by one name, whatever their clients called them.
 *
 * Return: 0, -ENOENT, or what @call answered.
 */
int __must_check proc_find_domain(struct proc *proc, const char *name,
				  struct core_domain_view *v);

/**
 * struct proc_trigger - a line written to a pressure file, taken apart
 * @of_domain: @domain, as it was shown; else the node
 * @res:       CORE_PSI_MEMORY, _IO or _CPU
 * @full:      else some
 * @threshold_ns: of stall, in
 * @window_ns: not judged yet
 */
struct proc_trigger {
	bool			of_domain;
	struct core_domain_view	domain;
	u32			res;
	bool			full;
	u64			threshold_ns;
	u64			window_ns;
};

/**
 * proc_trigger_parse() - which trigger is meant
 * @key:  who asks, as for proc_request_as(): what it may not read it may not
 *        watch
 * @path: of a pressure file
 * @text: `some THRESHOLD WINDOW` or `full THRESHOLD WINDOW`, in microseconds
 *
 * Return: 0; -EINVAL for the text; -ENOENT; -EISDIR; -EOPNOTSUPP: a file that
 * takes no triggers; or what @call answered.
 */
int __must_check proc_trigger_parse(struct proc *proc, u64 key,
				    const char *path, const char *text,
				    struct proc_trigger *t);

/**
 * proc_answer_head() - the first line of an answer on a stream
 * @err:  what proc_request() returned
 * @out:  what it wrote; after an `ok` its bytes follow, after an `error` not
 * @head: PROC_HEAD_MAX bytes; NUL-terminated
 *
 * Return: bytes of the line, its newline included.
 */
size_t proc_answer_head(int err, const struct seq_file *out,
			char head[PROC_HEAD_MAX]);

/**
 * struct proc_entry - one file of the tree, as documentation needs it
 * @path: components in capitals stand for names: NAME a domain, ID a client,
 *        SEQ a sequence of that
 * @mode: permission bits
 * @text: one line that says what it is
 */
struct proc_entry {
	const char	*path;
	u32		mode;
	const char	*text;
};

/* proc_get_entry() - file number @i; false behind the last one. */
bool proc_get_entry(u32 i, struct proc_entry *entry);

#endif /* KVMM_PROC_PROC_H */
