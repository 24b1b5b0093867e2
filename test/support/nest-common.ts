/**
 * What the library itself uses of `@nestjs/common`. Jest loads the modules of each spec file anew: the whole package,
 * with rxjs, is 400 modules, and these are 40. A name that is missing here fails when it is imported.
 */
import 'reflect-metadata';

export { Inject } from '@nestjs/common/decorators/core/inject.decorator.js';
export { Injectable } from '@nestjs/common/decorators/core/injectable.decorator.js';
export { Optional } from '@nestjs/common/decorators/core/optional.decorator.js';
export { SetMetadata } from '@nestjs/common/decorators/core/set-metadata.decorator.js';
export { HttpException } from '@nestjs/common/exceptions/http.exception.js';
export { StreamableFile } from '@nestjs/common/file-stream/streamable-file.js';
export { Logger } from '@nestjs/common/services/logger.service.js';
