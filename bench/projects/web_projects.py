# ruff: noqa: E501 - texts of files, most of them on one line
"""Projects in JavaScript and TypeScript: runners, package managers and workspaces."""

import json

from bench.projects.project import Project

NODE_TEST = (
    "import test from 'node:test'\nimport assert from 'node:assert'\n\ntest('adds', () => assert.equal(1 + 2, 3))\n"
)
MOCHA_TEST = "const assert = require('assert')\n\ndescribe('add', () => it('adds', () => assert.equal(1 + 2, 3)))\n"
JEST_TEST = "test('adds', () => expect(1 + 2).toBe(3))\n"
VITEST_TEST = "import { expect, test } from 'vitest'\nimport { add } from './add'\n\ntest('adds', () => expect(add(1, 2)).toBe(3))\n"
ADD_TS = "export const add = (a: number, b: number): number => a + b\n"
BUN_TEST = "import { expect, test } from 'bun:test'\nimport { add } from './add'\n\ntest('adds', () => expect(add(1, 2)).toBe(3))\n"
DENO_TEST = "Deno.test('adds', () => {\n  if (1 + 2 !== 3) throw new Error('wrong')\n})\n"
IGNORES = {".gitignore": "node_modules/\n"}
NO_TEST = 'echo "Error: no test specified" && exit 1'


def package(**keys: object) -> str:
    return json.dumps({"version": "1.0.0", "private": True, **keys}, indent=2) + "\n"


MEMBER = package(name="one", type="module", scripts={"test": "node --test"}, dependencies={"is-odd": "^3.0.0"})
MEMBER_TEST = (
    "import test from 'node:test'\nimport assert from 'node:assert'\nimport isOdd from 'is-odd'\n\n"
    "test('odd', () => assert.ok(isOdd(3)))\n"
)

PROJECTS = (
    Project(
        "node-test",
        "JavaScript with node --test",
        {"package.json": package(name="a", type="module", scripts={"test": "node --test"}), "add.test.js": NODE_TEST},
        needs=("node", "npm"),
    ),
    Project(
        "npm-mocha",
        "JavaScript with npm and mocha",
        {
            "package.json": package(name="a", scripts={"test": "mocha"}, devDependencies={"mocha": "^10.0.0"}),
            "test/add.js": MOCHA_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        author=(("npm", "install", "-q", "--package-lock-only"),),
        needs_network=True,
    ),
    Project(
        "npm-jest",
        "JavaScript with jest",
        {
            "package.json": package(name="a", scripts={"test": "jest"}, devDependencies={"jest": "^29.0.0"}),
            "add.test.js": JEST_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        needs_network=True,
    ),
    Project(
        "vitest",
        "TypeScript with vitest",
        {
            "package.json": package(name="a", scripts={"test": NO_TEST}, devDependencies={"vitest": "^2.0.0"}),
            "tsconfig.json": '{ "compilerOptions": { "strict": true } }\n',
            "src/add.ts": ADD_TS,
            "src/add.test.ts": VITEST_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        needs_network=True,
    ),
    Project(
        "npm-workspaces",
        "npm workspaces",
        {
            "package.json": package(name="root", workspaces=["packages/*"]),
            "packages/one/package.json": MEMBER,
            "packages/one/odd.test.js": MEMBER_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        author=(("npm", "install", "-q", "--package-lock-only"),),
        needs_network=True,
    ),
    Project(
        "pnpm-workspace",
        "a pnpm workspace",
        {
            "package.json": package(name="root", packageManager="pnpm@9.15.0"),
            "pnpm-workspace.yaml": "packages:\n  - packages/*\n",
            "packages/one/package.json": MEMBER,
            "packages/one/odd.test.js": MEMBER_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        author=(("npx", "-y", "pnpm@9.15.0", "install", "--lockfile-only", "--silent"),),
        needs_network=True,
    ),
    Project(
        "yarn",
        "JavaScript with Yarn",
        {
            "package.json": package(name="a", scripts={"test": "mocha"}, devDependencies={"mocha": "^10.0.0"}),
            "test/add.js": MOCHA_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        author=(("npx", "-y", "yarn@1", "install", "--silent"),),
        needs_network=True,
    ),
    Project(
        "bun",
        "TypeScript with Bun",
        {
            "package.json": package(name="a", dependencies={"is-odd": "^3.0.0"}),
            "src/add.ts": ADD_TS,
            "src/add.test.ts": BUN_TEST,
            **IGNORES,
        },
        needs=("node", "npm"),
        author=(("npx", "-y", "bun", "install", "--silent"),),
        needs_network=True,
    ),
    Project(
        "deno",
        "TypeScript with Deno",
        {"deno.json": '{ "tasks": { "test": "deno test" } }\n', "add_test.ts": DENO_TEST},
        needs=("node", "npm"),
        needs_network=True,
    ),
)
