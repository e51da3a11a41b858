/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opts.h - command-line options from one list
 *
 * A program writes its options once, as an X-macro, and gets from it the
 * structure that holds them, their parser, the text of --help with the
 * defaults in it, and the page of its manual:
 *
 *	#define MY_OPTS(x)						\
 *		x(str,  path, "path", NULL, 0, 0, "PATH", "where")	\
 *		x(size, room, "room", "64M", 1 << 20, 1ull << 40,	\
 *		  "SIZE", "bytes to take")
 *
 *	struct my_opts {
 *	#define x OPT_FIELD
 *		MY_OPTS(x)
 *	#undef x
 *	};
 *
 *	static const struct kv_opt my_table[] = {
 *	#define x(...) OPT_ENTRY(struct my_opts, __VA_ARGS__)
 *		MY_OPTS(x)
 *	#undef x
 *	};
 *
 * Kinds:
 *
 *	str	const char *	any text, not copied
 *	size	u64		bytes: 4096, 64K, 256M, 60GiB, 1.5T; with KB, MB, GB
 *				and TB powers of 1000
 *	amount	struct kv_amount  bytes, 25% of a total, or auto; the program
 *				knows the total and the rule of auto
 *	uint	u32		decimal
 *	flag	bool		takes no value
 *	choice	u32		index of one word of the meta text, "auto|host"
 *	list	struct kv_list	any text, each time that the option is given
 *
 * A default is text and goes through the same parser, so the program does as
 * --help says.  `--name VALUE` and `--name=VALUE` are the same; `--` ends the
 * options.  Every program also has --help (-h) and --version, and for the build
 * --print-man and --print-completion; a program that reads a file of options
 * (config.h) has --print-config and --print-config-man.
 */
#ifndef KVMM_OPTS_H
#define KVMM_OPTS_H

#include <stdio.h>

#include <kvmm/types.h>
#include <kvmm/version.h>

enum kv_opt_kind {
	KV_OPT_str,
	KV_OPT_size,
	KV_OPT_amount,
	KV_OPT_uint,
	KV_OPT_flag,
	KV_OPT_choice,
	KV_OPT_list,
};

#define KV_LIST_MAX	32

/* The values that an option was given, in order; not copied. */
struct kv_list {
	u32		nr;
	const char	*s[KV_LIST_MAX];
};

enum kv_amount_unit {
	KV_AMOUNT_UNSET,	/* not given; the program's default */
	KV_AMOUNT_BYTES,
	KV_AMOUNT_PERCENT,	/* 1 to 100 */
	KV_AMOUNT_AUTO,		/* the program's rule; no value */
};

/* An amount as given; bytes are checked against the option's bounds. */
struct kv_amount {
	enum kv_amount_unit	unit;
	u64			value;
};

/**
 * struct kv_opt - one option
 * @name:   without the dashes
 * @kind:   how its value is read
 * @offset: of the field in the program's structure
 * @def:    default as text; NULL: none (0, false or NULL)
 * @lo:     least value of size, amount and uint
 * @hi:     greatest value of them; 0: no bound
 * @meta:   name of the value in --help; for a choice its words
 * @help:   its effect, without full stop
 */
struct kv_opt {
	const char		*name;
	enum kv_opt_kind	kind;
	size_t			offset;
	const char		*def;
	u64			lo;
	u64			hi;
	const char		*meta;
	const char		*help;
};

#define OPT_CTYPE_str		const char *
#define OPT_CTYPE_size		u64
#define OPT_CTYPE_amount	struct kv_amount
#define OPT_CTYPE_uint		u32
#define OPT_CTYPE_flag		bool
#define OPT_CTYPE_choice	u32
#define OPT_CTYPE_list		struct kv_list

#define OPT_FIELD(_kind, _field, ...)	OPT_CTYPE_##_kind _field;
#define OPT_ENTRY(_type, _kind, _field, _name, _def, _lo, _hi, _meta, _help) \
	{								\
		.name = _name, .kind = KV_OPT_##_kind,			\
		.offset = offsetof(_type, _field), .def = _def,		\
		.lo = _lo, .hi = _hi, .meta = _meta, .help = _help,	\
	},

/* An exit code and its meaning, for --help and the manual. */
struct kv_exit {
	int		code;
	const char	*text;
};

struct kv_program;
struct kv_config;

/**
 * struct kv_command - a command: a word before the operands
 * @operands: as usage text
 * @help:     its effect
 * @prog:     its own options and commands; NULL: those of the program
 */
struct kv_command {
	const char		*name;
	const char		*operands;
	const char		*help;
	const struct kv_program	*prog;
};

/**
 * struct kv_foreign - an option of a similar program, which this one does not have
 * @name: without the dashes
 * @here: the way to the same, for the message, without full stop
 */
struct kv_foreign {
	const char	*name;
	const char	*here;
};

/**
 * struct kv_program - the description of a program
 * @name:     of the program
 * @brief:    a few words about it; NULL: it has no manual page
 * @man:      section of the manual
 * @operands: operands after the options, as usage text; NULL: none
 * @about:    one paragraph
 * @opts:     @nr_opts of them
 * @foreign:  @nr_foreign of them; may be NULL
 * @exits:    @nr_exits of them; may be NULL
 * @commands: @nr_commands of them; may be NULL
 * @more:     prints the end of --help; may be NULL
 * @file:     the file of options that it reads; NULL: it reads none
 */
struct kv_program {
	const char		*name;
	const char		*brief;
	u32			man;
	const char		*operands;
	const char		*about;
	const struct kv_opt	*opts;
	u32			nr_opts;
	const struct kv_foreign	*foreign;
	u32			nr_foreign;
	const struct kv_exit	*exits;
	u32			nr_exits;
	const struct kv_command	*commands;
	u32			nr_commands;
	void			(*more)(FILE *out);
	const struct kv_config	*(*file)(void);
};

/**
 * kv_opts_parse() - set defaults, then the options of the command line
 * @prog:   the program
 * @values: its structure of options; written whole, also on failure
 * @argv:   operands are moved to its front, NULL behind them
 * @text:   @len bytes for one line that names the option and the remedy
 *
 * --help and --version print to stdout.
 *
 * Return: the number of operands; -ECANCELED after --help or --version: exit
 * with 0; -EINVAL with @text filled.
 */
int __must_check kv_opts_parse(const struct kv_program *prog, void *values,
			       int argc, char **argv, char *text, size_t len);

/**
 * kv_opts_parse_keys() - set defaults, then the keys of `KEY=VALUE,KEY=VALUE`
 * @opts:   @nr keys; no flag and no list among them
 * @values: their structure; written whole
 * @spec:   cut into pieces, to which strings point
 * @text:   @len bytes for one line that names the key and the remedy
 *
 * Return: 0, or -EINVAL with @text filled.
 */
int __must_check kv_opts_parse_keys(const struct kv_opt *opts, u32 nr,
				    void *values, char *spec, char *text,
				    size_t len);

/* kv_opt_unknown() - a line about the unknown option @arg, dashes and value included */
void kv_opt_unknown(const struct kv_program *prog, const char *arg, char *text,
		    size_t len);

/* kv_opts_help() - print the text of --help */
void kv_opts_help(const struct kv_program *prog, FILE *out);

/**
 * kv_opts_print() - print a text that the build asks for
 * @what: "man", "completion", "config" or "config-man"
 *
 * Return: false: the program has no such text.
 */
bool kv_opts_print(const struct kv_program *prog, const char *what, FILE *out);

/* kv_opts_man() - print the manual page, for man(1) */
void kv_opts_man(const struct kv_program *prog, FILE *out);

/* kv_opts_completion() - print the completion for bash, to be sourced */
void kv_opts_completion(const struct kv_program *prog, FILE *out);

/**
 * kv_opts_help_entry() - print one entry of a list in --help, wrapped as the others
 * @mark: before the name: "--" of an option, "" of a command
 * @meta: text after the name; "": none
 */
void kv_opts_help_entry(const char *mark, const char *name, const char *meta,
			const char *text, FILE *out);

/* Examples of sizes, for messages: "not a valid size: write ...". */
#define KV_SIZE_TEXT	"64K, 256M, 60GiB"

/*
 * kv_parse_size() - "64M", "60GiB" or "1.5GB" to bytes: 0, -ERANGE past 64 bits,
 * -EINVAL, also if it is no whole number of bytes
 */
int __must_check kv_parse_size(const char *s, u64 *bytes);

/* kv_parse_amount() - "64M", "25%" or "auto": as kv_parse_size() */
int __must_check kv_parse_amount(const char *s, struct kv_amount *amount);

/* kv_parse_uint() - decimal digits and nothing else: 0, -EINVAL, -ERANGE */
int __must_check kv_parse_uint(const char *s, u64 *value);

/* kv_format_size() - bytes for people, "64M" where it is exact; returns @buf */
char *kv_format_size(u64 bytes, char *buf, size_t len);

/* kv_format_near() - "56M or 64M", the multiples of @unit around @bytes, which is none */
char *kv_format_near(u64 bytes, u64 unit, char *buf, size_t len);

#endif /* KVMM_OPTS_H */
