/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usdt.h - the probes of a binary, and their arguments while it runs
 *
 * It reads the notes that <sys/sdt.h> leaves (section .note.stapsdt).  It is a
 * tracer without eBPF: the test forks, the child runs code with probes, and the
 * parent, by ptrace, raises the semaphores, puts int3 in the place of the nops,
 * and reads the arguments at the places in the notes.  A nop is one byte, so
 * the child goes on behind it.
 */
#ifndef TESTS_USDT_H
#define TESTS_USDT_H

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/probes.h>

#define USDT_MAX	256u
#define USDT_HITS	8192u
#define USDT_ARGS	6u

/* One place of a probe; a probe may have several. */
struct usdt_note {
	u64	pc;
	u64	semaphore;
	char	provider[32];
	char	name[32];
	char	args[160];	/* as in the note */
	u32	nr_args;
};

struct usdt_file {
	struct usdt_note note[USDT_MAX];
	u32	nr;
	u64	entry;		/* e_entry: for its load address */
};

struct usdt_hit {
	const struct usdt_note *note;
	u64	arg[USDT_ARGS];
};

static inline const Elf64_Shdr *usdt_section(const u8 *map, const char *name)
{
	const Elf64_Ehdr *eh = (const void *)map;
	const Elf64_Shdr *all = (const void *)(map + eh->e_shoff);
	const char *names = (const char *)map + all[eh->e_shstrndx].sh_offset;
	u32 i;

	for (i = 0; i < eh->e_shnum; i++)
		if (!strcmp(names + all[i].sh_name, name))
			return &all[i];
	return NULL;
}

static inline u32 usdt_count_args(const char *s)
{
	u32 nr = 0;

	while (*(s += strspn(s, " "))) {
		nr++;
		s += strcspn(s, " ");
	}
	return nr;
}

static inline void usdt_note_read(struct usdt_file *f, const char *d, u64 moved)
{
	struct usdt_note *n = &f->note[f->nr++];
	u64 word[3];

	memcpy(word, d, sizeof(word));
	d += sizeof(word);
	n->pc = word[0] + moved - word[1];
	n->semaphore = word[2] ? word[2] + moved - word[1] : 0;
	snprintf(n->provider, sizeof(n->provider), "%s", d);
	d += strlen(d) + 1;
	snprintf(n->name, sizeof(n->name), "%s", d);
	d += strlen(d) + 1;
	snprintf(n->args, sizeof(n->args), "%s", d);
	n->nr_args = usdt_count_args(d);
}

/* usdt_read() - the notes of a file; 0 or a negative errno */
static inline int usdt_read(const char *path, struct usdt_file *f)
{
	const Elf64_Shdr *notes, *base;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	u64 at;
	u8 *map;

	memset(f, 0, sizeof(*f));
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return -errno;
	f->entry = ((const Elf64_Ehdr *)map)->e_entry;
	notes = usdt_section(map, ".note.stapsdt");
	base = usdt_section(map, ".stapsdt.base");
	for (at = 0; notes && base && at < notes->sh_size && f->nr < USDT_MAX;) {
		const u8 *p = map + notes->sh_offset + at;
		const Elf64_Nhdr *nh = (const void *)p;

		p += sizeof(*nh) + ALIGN_UP(nh->n_namesz, 4u);
		if (nh->n_type == 3)
			usdt_note_read(f, (const char *)p, base->sh_addr);
		at += sizeof(*nh) + ALIGN_UP(nh->n_namesz, 4u) +
		      ALIGN_UP(nh->n_descsz, 4u);
	}
	munmap(map, (size_t)st.st_size);
	return 0;
}

#ifdef __x86_64__
static inline bool usdt_register(const struct user_regs_struct *r,
				 const char *name, size_t len, u64 *v)
{
	static const struct {
		const char *names[4];	/* of 8, 4, 2 and 1 bytes */
		size_t at;
	} regs[] = {
#define x(n8, n4, n2, n1, field)					\
	{ { n8, n4, n2, n1 }, offsetof(struct user_regs_struct, field) },
		x("rax", "eax", "ax", "al", rax) x("rbx", "ebx", "bx", "bl", rbx)
		x("rcx", "ecx", "cx", "cl", rcx) x("rdx", "edx", "dx", "dl", rdx)
		x("rsi", "esi", "si", "sil", rsi) x("rdi", "edi", "di", "dil", rdi)
		x("rbp", "ebp", "bp", "bpl", rbp) x("rsp", "esp", "sp", "spl", rsp)
		x("r8", "r8d", "r8w", "r8b", r8) x("r9", "r9d", "r9w", "r9b", r9)
		x("r10", "r10d", "r10w", "r10b", r10) x("r11", "r11d", "r11w", "r11b", r11)
		x("r12", "r12d", "r12w", "r12b", r12) x("r13", "r13d", "r13w", "r13b", r13)
		x("r14", "r14d", "r14w", "r14b", r14) x("r15", "r15d", "r15w", "r15b", r15)
#undef x
	};
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(regs); i++)
		for (k = 0; k < 4; k++)
			if (strlen(regs[i].names[k]) == len &&
			    !memcmp(regs[i].names[k], name, len)) {
				memcpy(v, (const u8 *)r + regs[i].at, 8);
				return true;
			}
	return false;
}

/* Value at disp(%base,%index,scale) of the stopped @pid. */
static inline bool usdt_memory(pid_t pid, const struct user_regs_struct *r,
			       const char *op, u64 *v)
{
	u64 address = 0, part, scale = 1;
	char *end;

	address = (u64)strtoll(op, &end, 0);
	if (end[0] != '(' || end[1] != '%')
		return false;
	op = end + 2;
	if (!usdt_register(r, op, strcspn(op, ",)"), &part))
		return false;
	address += part;
	op += strcspn(op, ",)");
	if (op[0] == ',' && op[1] == '%') {
		op += 2;
		if (!usdt_register(r, op, strcspn(op, ",)"), &part))
			return false;
		op += strcspn(op, ",)");
		if (*op == ',')
			scale = strtoull(op + 1, NULL, 10);
		address += part * scale;
	}
	errno = 0;
	*v = (u64)ptrace(PTRACE_PEEKDATA, pid, address, NULL);
	return !errno;
}

/* Value of an operand like -4@%eax: sign and size, then its place. */
static inline bool usdt_operand(pid_t pid, const struct user_regs_struct *r,
				const char *op, u64 *v)
{
	long size = strtol(op, (char **)(uintptr_t)&op, 10);
	u32 bits = 64 - 8 * (u32)labs(size);

	if (*op++ != '@')
		return false;
	if (*op == '$')
		*v = (u64)strtoll(op + 1, NULL, 0);
	else if (*op == '%' ? !usdt_register(r, op + 1, strcspn(op + 1, " "), v) :
		 !usdt_memory(pid, r, op, v))
		return false;
	*v = size < 0 ? (u64)((s64)(*v << bits) >> bits) : *v << bits >> bits;
	return true;
}

static inline bool usdt_poke(pid_t pid, u64 at, u64 value, u64 mask)
{
	u64 word;

	errno = 0;
	word = (u64)ptrace(PTRACE_PEEKDATA, pid, at, NULL);
	if (errno)
		return false;
	word = (word & ~mask) | value;
	return !ptrace(PTRACE_POKEDATA, pid, at, word);
}

/* The child stopped behind an int3: find its probe and read the arguments. */
static inline bool usdt_take(pid_t pid, const struct usdt_file *f, u64 bias,
			     struct usdt_hit *h)
{
	struct user_regs_struct regs;
	const char *op;
	u32 i, k;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &regs))
		return false;
	for (i = 0; i < f->nr && f->note[i].pc + bias != regs.rip - 1; i++)
		;
	if (i == f->nr)
		return false;
	h->note = &f->note[i];
	op = h->note->args;
	for (k = 0; k < h->note->nr_args && k < USDT_ARGS; k++) {
		op += strspn(op, " ");
		if (!usdt_operand(pid, &regs, op, &h->arg[k])) {
			fprintf(stderr, "argument %u of %s cannot be read: %s\n",
				k, h->note->name, h->note->args);
			return false;
		}
		op += strcspn(op, " ");
	}
	return true;
}

/**
 * usdt_trace() - run @scene in a child, and note the hits of its probes
 * @hits: [USDT_HITS], @nr of them
 *
 * The notes are those of this program.
 * Return: 0; -EPERM: ptrace is forbidden; -ECHILD: the child failed; -EIO: an
 * argument cannot be read.
 */
static inline int usdt_trace(const struct usdt_file *f, void (*scene)(void),
			     struct usdt_hit *hits, u32 *nr)
{
	extern char __executable_start[];
	/* Load address of a program that moves; otherwise 0. */
	const u64 bias = f->entry < (u64)(uintptr_t)__executable_start ?
			 (u64)(uintptr_t)__executable_start : 0;
	int status, err = 0;
	pid_t pid;
	u32 i;

	*nr = 0;
	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(100);
		raise(SIGSTOP);
		scene();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -ECHILD;
	if (WIFEXITED(status))
		return -EPERM;
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL);
	for (i = 0; i < f->nr && !err; i++)
		if (!usdt_poke(pid, f->note[i].pc + bias, 0xcc, 0xff) ||
		    !usdt_poke(pid, f->note[i].semaphore + bias, 1, 0xffff))
			err = -EIO;
	while (!err) {
		int sig = WSTOPSIG(status);

		if (ptrace(PTRACE_CONT, pid, NULL,
			   sig == SIGSTOP || sig == SIGTRAP ? 0 : sig) ||
		    waitpid(pid, &status, 0) != pid)
			err = -ECHILD;
		else if (!WIFSTOPPED(status))
			return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 :
			       -ECHILD;
		else if (WSTOPSIG(status) == SIGTRAP &&
			 (*nr == USDT_HITS ||
			  !usdt_take(pid, f, bias, &hits[(*nr)++])))
			err = -EIO;
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return err;
}
#endif /* __x86_64__ */

/* ---- expected hits ---- */

#define USDT_ANY	0xa5a5a5a5a5a5a5a5ull	/* any value */
#define USDT_WANTS	256u

struct usdt_want {
	char	name[32];
	bool	among;
	u64	arg[USDT_ARGS];
};

/* The scene writes it, and the tracer reads it. */
struct usdt_wants {
	u32			nr;
	struct usdt_want	w[USDT_WANTS];
};

static inline struct usdt_wants *usdt_wants_make(void)
{
	void *p = mmap(NULL, sizeof(struct usdt_wants), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* usdt_want() - the next hit of @name has these arguments */
#define usdt_want(wants, probe, ...)					\
do {									\
	const u64 usdt_args_[] = { __VA_ARGS__ };			\
	struct usdt_want *w_ = &(wants)->w[(wants)->nr++];		\
									\
	snprintf(w_->name, sizeof(w_->name), "%s", probe);		\
	memcpy(w_->arg, usdt_args_, sizeof(usdt_args_));		\
} while (0)

/* usdt_want_among() - likewise, with any number of others of that name around it */
#define usdt_want_among(wants, probe, ...)				\
do {									\
	usdt_want(wants, probe, __VA_ARGS__);				\
	(wants)->w[(wants)->nr - 1].among = true;			\
} while (0)

static inline bool usdt_says(const struct usdt_want *w, const struct usdt_hit *h,
			     u32 *wrong)
{
	u32 a;

	for (a = 0; a < h->note->nr_args; a++) {
		*wrong = a;
		if (w->arg[a] != USDT_ANY && w->arg[a] != h->arg[a])
			return false;
	}
	return true;
}

/* Index of the next wanted hit of that name; @all: of any name. */
static inline u32 usdt_next(const struct usdt_wants *wants, const bool *used,
			    const char *name, const struct usdt_want **all)
{
	u32 k;

	*all = NULL;
	for (k = 0; k < wants->nr; k++) {
		if (strcmp(wants->w[k].name, name))
			continue;
		*all = &wants->w[k];
		if (!used[k])
			break;
	}
	return k;
}

/*
 * Every probe with wanted hits must have had them, in that order, with these
 * arguments.  Return: whether; the first difference is printed.
 */
static inline bool usdt_compare(const struct usdt_wants *wants,
				const struct usdt_hit *hits, u32 nr)
{
	bool used[USDT_WANTS] = { false };
	u32 i, k, wrong = 0;

	for (i = 0; i < nr; i++) {
		const char *name = hits[i].note->name;
		const struct usdt_want *w;

		k = usdt_next(wants, used, name, &w);
		if (!w || (k == wants->nr && w->among))
			continue;
		if (k == wants->nr) {
			fprintf(stderr, "%s is hit too often\n", name);
			return false;
		}
		used[k] = usdt_says(w, &hits[i], &wrong);
		if (used[k] || w->among)
			continue;
		fprintf(stderr, "%s: argument %u is %llu, want %llu\n", name, wrong,
			(unsigned long long)hits[i].arg[wrong],
			(unsigned long long)w->arg[wrong]);
		return false;
	}
	for (k = 0; k < wants->nr; k++) {
		if (used[k])
			continue;
		fprintf(stderr, "%s was not hit as often as it had to be\n",
		       wants->w[k].name);
		return false;
	}
	return true;
}

#endif /* TESTS_USDT_H */
